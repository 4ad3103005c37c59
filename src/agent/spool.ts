/**
 * The outbox's rows: events of jobs that the server has not acknowledged yet, bounded per job and over
 * all jobs.
 *
 *   segment files ──append──> rows ──read, sent──> acknowledged ──> gone
 *                              │ more than the bound
 *                              v
 *                    the oldest lines of the largest job ──> one gap, which grows
 *
 * Invariants: the rows of a job follow each other without a hole, so every number is in exactly one of
 * them. Events and how far they were imported change in one transaction, so nothing is imported twice.
 * An outcome never gives way, and goes only with its job.
 */
import type { Outcome } from "../model/job.ts";
import { type JobEvent, lastSeqOf } from "../protocol/events.ts";
import type { JobKey } from "../protocol/job-key.ts";
import type { Mark } from "./events-file.ts";
import type { JournalFile } from "./journal-file.ts";
import type { RecallMemory } from "./recall-memory.ts";

export const spoolBytesMaxDefault = 256 * 1024 * 1024;
export const jobSpoolBytesMaxDefault = 64 * 1024 * 1024;
/** What a row costs besides its text. */
const rowBytes = 32;
/** At most what a gap's row costs. */
const gapRowBytes = 512;
/** More than necessary gives way at once, so that it is not done again for every chunk. */
const roomFactor = 1 / 8;
/** On a full disk the spool does not grow beyond what it has, or this. */
const lowBytesMax = 1024 * 1024;
const acknowledgeDelayMs = 250;
const pressureReason = "The spool was full while the server was away; the oldest lines gave way.";
const fullReason = "The agent's disk was full; the oldest lines gave way.";
/** Pages that are given back to the disk at once, and from how many free ones on. */
const vacuumPages = 2000;

export interface SpoolLimits {
  readonly spoolBytesMax: number;
  readonly jobSpoolBytesMax: number;
}

/** One job's part of the spool. */
export interface JobSpool {
  /** Where the import goes on, and the number of the outcome once it is there. */
  state(): { readonly mark: Mark; readonly outcomeSeq: number | null };
  /** Events that follow each other from the mark on, and the new mark; false when the job is gone. */
  append(events: readonly JobEvent[], mark: Mark): Promise<boolean>;
  /** Rows that stand for numbers after this one, in order, about so many bytes; at least one if there is any. */
  read(after: number, rowsMax: number, bytesMax: number): JobEvent[];
  /** What is safe may go; soon, not at once. */
  acknowledge(upTo: number): void;
}

/** The spool in this journal. */
export function createSpool(
  file: JournalFile,
  memory: RecallMemory,
  { limits, now }: { limits: SpoolLimits; now: () => Date },
) {
  const { database } = file;
  const statements = prepare(file);
  const acknowledged = new Map<number, number>();
  let timer: NodeJS.Timeout | undefined;
  let lowLimit: number | null = null;
  let isClosed = false;

  /** Inside a transaction: lines of this job, oldest first, until so many bytes are free. */
  function giveWay(job: number, bytes: number): number {
    let freed = 0;
    let first: number | null = null;
    let last = 0;
    let rows = 0;
    for (const row of statements.oldest.iterate(job)) {
      if (freed >= bytes || row.kind === "outcome") break;
      first ??= Number(row.seq);
      last = Number(row.last);
      freed += Number(row.bytes);
      rows++;
    }
    // A gap alone cannot become smaller.
    if (first === null || rows < 2) return 0;
    statements.removeRows.run(job, first, last);
    const reason = file.isLow() ? fullReason : pressureReason;
    const gap = { seq: first, at: now().toISOString(), type: "gap", last, reason } as const;
    const added = insert(job, gap);
    statements.addBytes.run(added - freed, job);
    return freed - added;
  }

  function insert(job: number, event: JobEvent): number {
    const body = JSON.stringify(event);
    const kind = event.type === "gap" || event.type === "outcome" ? event.type : "line";
    const bytes = Buffer.byteLength(body) + rowBytes;
    statements.insert.run(job, event.seq, lastSeqOf(event), kind, bytes, body);
    return bytes;
  }

  const total = () => Number(statements.total.get()?.total ?? 0);

  /** Inside a transaction, after rows were added. */
  function makeRoom(job: number): void {
    const own = Number(statements.bytesOf.get(job)?.spooled_bytes ?? 0);
    if (own > limits.jobSpoolBytesMax) {
      giveWay(job, own - limits.jobSpoolBytesMax * (1 - roomFactor));
    }
    if (!file.isLow()) lowLimit = null;
    else lowLimit ??= Math.max(total(), lowBytesMax);
    const bytesMax = Math.min(limits.spoolBytesMax, lowLimit ?? Number.POSITIVE_INFINITY);
    let excess = total() - bytesMax;
    if (excess <= 0) return;
    excess += bytesMax * roomFactor;
    for (const row of statements.largest.all()) {
      if (excess <= 0) return;
      // With room for the gap itself, or the next job would have to give a line for it.
      const share = Math.min(excess + gapRowBytes, Number(row.spooled_bytes));
      excess -= giveWay(Number(row.id), share);
    }
  }

  /** What is safe goes in one step for all jobs; where there is no room for that now, later. */
  async function removeAcknowledged(): Promise<void> {
    timer = undefined;
    const removed = [...acknowledged];
    try {
      await file.queue(() => {
        for (const [job, upTo] of removed) {
          const { bytes } = statements.bytesUpTo.get(job, upTo, upTo) ?? {};
          statements.removeUpTo.run(job, upTo, upTo);
          statements.addBytes.run(-Number(bytes ?? 0), job);
        }
      });
    } catch {
      return plan();
    }
    for (const [job, upTo] of removed) {
      if (acknowledged.get(job) === upTo) acknowledged.delete(job);
    }
    const { freelist_count } = database.prepare("pragma freelist_count").get() ?? {};
    if (Number(freelist_count) > vacuumPages) {
      database.exec(`pragma incremental_vacuum(${vacuumPages})`);
    }
  }

  function plan(): void {
    if (isClosed) return;
    timer ??= setTimeout(() => {
      // Giving pages back may fail on a full disk; the next time does it.
      void removeAcknowledged().catch(() => undefined);
    }, acknowledgeDelayMs).unref();
  }

  function ofJob(key: JobKey, name: string): JobSpool {
    const job = Number(statements.jobOf.get(name)?.id ?? 0);
    return {
      state() {
        const row = statements.state.get(job);
        const mark = {
          segment: Number(row?.segment ?? 1),
          offset: Number(row?.offset ?? 0),
          seq: Number(row?.next_seq ?? 1),
        };
        return { mark, outcomeSeq: row?.outcome_seq == null ? null : Number(row.outcome_seq) };
      },
      async append(events, mark) {
        const last = events.at(-1);
        const outcome = last?.type === "outcome" ? last : null;
        let isThere = false;
        await file.queue(() => {
          const manifest = statements.manifestOf.get(job);
          isThere = manifest !== undefined;
          if (!isThere) return;
          let bytes = 0;
          for (const event of events) bytes += insert(job, event);
          const { segment, offset, seq } = mark;
          statements.move.run(segment, offset, seq, outcome?.seq ?? null, bytes, job);
          if (outcome && typeof manifest?.manifest === "string") {
            memory.remember(key, manifest.manifest, outcome.outcome as Outcome);
          }
          makeRoom(job);
        });
        return isThere;
      },
      read(after, rowsMax, bytesMax) {
        const events: JobEvent[] = [];
        let bytes = 0;
        for (const row of statements.after.iterate(job, job, after, after, rowsMax)) {
          bytes += Number(row.bytes);
          if (events.length > 0 && bytes > bytesMax) break;
          events.push(JSON.parse(String(row.body)) as JobEvent);
        }
        return events;
      },
      acknowledge(upTo) {
        acknowledged.set(job, Math.max(upTo, acknowledged.get(job) ?? 0));
        plan();
      },
    };
  }

  return {
    ofJob,
    /** Inside the caller's transaction: everything of a job that is over. */
    removeJob(name: string): void {
      const job = Number(statements.jobOf.get(name)?.id ?? 0);
      statements.removeAll.run(job);
      acknowledged.delete(job);
    },
    total,
    close(): void {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}

function prepare({ database }: JournalFile) {
  return {
    jobOf: database.prepare("select id from jobs where name = ?"),
    manifestOf: database.prepare("select manifest from jobs where id = ?"),
    state: database.prepare("select segment, offset, next_seq, outcome_seq from jobs where id = ?"),
    bytesOf: database.prepare("select spooled_bytes from jobs where id = ?"),
    total: database.prepare("select sum(spooled_bytes) as total from jobs"),
    largest: database.prepare(
      "select id, spooled_bytes from jobs where spooled_bytes > 0 order by spooled_bytes desc",
    ),
    insert: database.prepare(
      "insert into events (job, seq, last, kind, bytes, body) values (?, ?, ?, ?, ?, ?)",
    ),
    move: database.prepare(
      `update jobs set segment = ?, offset = ?, next_seq = ?,
         outcome_seq = coalesce(?, outcome_seq), spooled_bytes = spooled_bytes + ? where id = ?`,
    ),
    addBytes: database.prepare("update jobs set spooled_bytes = spooled_bytes + ? where id = ?"),
    oldest: database.prepare(
      "select seq, last, kind, bytes from events where job = ? order by seq",
    ),
    removeRows: database.prepare("delete from events where job = ? and seq >= ? and seq <= ?"),
    // The row before may be a gap that reaches beyond the number.
    after: database.prepare(
      `select bytes, body from events
       where job = ? and seq >= (select coalesce(max(seq), 0) from events where job = ? and seq <= ?)
         and last > ? order by seq limit ?`,
    ),
    bytesUpTo: database.prepare(
      `select sum(bytes) as bytes from events
       where job = ? and seq <= ? and last <= ? and kind <> 'outcome'`,
    ),
    removeUpTo: database.prepare(
      "delete from events where job = ? and seq <= ? and last <= ? and kind <> 'outcome'",
    ),
    removeAll: database.prepare("delete from events where job = ?"),
  };
}
