/**
 * The agent's journal: what it launched, which epochs it has seen, what it refused, its outbox, and what
 * it remembers of jobs that ended. All of it in one file, so that one commit covers what belongs together.
 *
 * Invariant: the newest epoch seen of a job never goes down and outlives the job's folder, so an old
 * offer can never start anything again. Only the newest epochs are kept: a grant older than its lease and
 * a minute is refused whatever its epoch is (`offer.ts`), and nobody launches so many jobs in that time.
 */
import { z } from "zod";
import type { JobId } from "../model/ids.ts";
import { compareEpochs, type Epoch } from "../model/job.ts";
import type { Digest } from "../model/json.ts";
import type { Checkpoint, Hello } from "../protocol/frames.ts";
import { jobFolderName } from "../protocol/job-folder.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { DigestText, JobIdText } from "../protocol/json-schema.ts";
import {
  isDiskFull,
  type JournalFile,
  type JournalFileOptions,
  openJournalFile,
} from "./journal-file.ts";
import { createRecallMemory, type RecallMemory } from "./recall-memory.ts";
import {
  createSpool,
  type JobSpool,
  jobSpoolBytesMaxDefault,
  type SpoolLimits,
  spoolBytesMaxDefault,
} from "./spool.ts";

const refusalsMax = 10_000;
const epochsMax = 100_000;

/** Why the agent itself brings an executor to its end. */
export const endReasons = ["cancelled", "timed_out", "silent"] as const;
export type EndReason = (typeof endReasons)[number];

/** What must be known of a job to watch it again after a restart. */
export interface JournalJob {
  readonly key: JobKey;
  /** What it works on, so that two never work on the same thing; null for builds. */
  readonly component: string | null;
  /** The signed document; null where an agent of version 1 launched it. */
  readonly manifest: string | null;
  readonly manifestDigest: Digest;
  /** On the machine's monotonic clock, which goes on while the agent is away. */
  readonly deadlineMs: number;
  /** How long the executor may give no sign of life; null: for ever. */
  readonly silenceMs: number | null;
  readonly endReason: EndReason | null;
  readonly graceMs: number;
}

export interface Refusal {
  readonly code: string;
  readonly reason: string;
  readonly job: JobKey | null;
}

export interface Journal {
  jobs(): JournalJob[];
  /** The newest epoch ever launched of a job. */
  newestEpoch(jobId: JobId): Epoch | null;
  /** The newest generation of any job that was launched, 0 before the first. */
  newestGeneration(): number;
  /** Records a job and its epoch in one step, before it is launched. */
  add(job: JournalJob): Promise<void>;
  /** For a job that an older agent launched. */
  setManifest(key: JobKey, manifest: string): Promise<void>;
  /** On a full disk it is known to this agent alone; the server asks again after a restart. */
  setEnding(key: JobKey, reason: EndReason, graceMs: number): void;
  /** Forgets the job and its events; its epoch stays, and its outcome for a recall. */
  remove(key: JobKey): Promise<void>;
  /** The outbox of a job that is in the journal. */
  spoolOf(key: JobKey): JobSpool;
  /** Bytes that all outboxes take. */
  spooledBytes(): number;
  recallPages(): ReturnType<RecallMemory["pages"]>;
  checkpoint(): Checkpoint | null;
  /** The number of the next hello of this folder. */
  nextHello(): NonNullable<Hello["count"]>;
  setCheckpoint(checkpoint: Checkpoint): Promise<void>;
  /** On a full disk only the server keeps it. */
  recordRefusal(refusal: Refusal, at: string): void;
  refusals(): Refusal[];
  close(): void;
}

export interface JournalOptions extends JournalFileOptions, Partial<SpoolLimits> {
  readonly now: () => Date;
}

const Row = z.object({
  job_id: JobIdText,
  generation: z.int(),
  n: z.int(),
  component: z.string().nullable(),
  manifest: z.string().nullable(),
  manifest_digest: DigestText,
  deadline_ms: z.number(),
  silence_ms: z.number().nullable(),
  end_reason: z.enum(endReasons).nullable(),
  grace_ms: z.number(),
});

const RefusalRow = z.object({ code: z.string(), reason: z.string(), job: z.string().nullable() });

/** Opens (or makes) the journal; a `Fault` when another agent has it open. */
export function openJournal(path: string, options: JournalOptions): Journal {
  const file = openJournalFile(path, options);
  const { database } = file;
  const memory = createRecallMemory(database);
  const folder = memory.folder();
  let hellos = memory.hellos();
  const {
    spoolBytesMax = spoolBytesMaxDefault,
    jobSpoolBytesMax = Math.min(jobSpoolBytesMaxDefault, spoolBytesMax),
    now,
  } = options;
  const spool = createSpool(file, memory, { limits: { spoolBytesMax, jobSpoolBytesMax }, now });
  const epochs = createEpochs(file);
  const addJob = database.prepare(
    `insert into jobs (name, job_id, generation, n, component, manifest, manifest_digest,
       deadline_ms, silence_ms, grace_ms) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  );
  return {
    jobs: () => database.prepare("select * from jobs order by name").all().map(toJob),
    newestEpoch: epochs.newest,
    newestGeneration: memory.generation,
    add(job) {
      const { jobId, epoch } = job.key;
      const { generation, n } = epoch;
      const { component, manifest, manifestDigest, deadlineMs, silenceMs, graceMs } = job;
      return file.queue(() => {
        epochs.note(job.key);
        memory.noteGeneration(generation);
        const what = [nameOf(job.key), jobId, generation, n, component, manifest] as const;
        addJob.run(...what, manifestDigest, deadlineMs, silenceMs, graceMs);
      });
    },
    setManifest(key, manifest) {
      const update = database.prepare("update jobs set manifest = ? where name = ?");
      return file.queue(() => void update.run(manifest, nameOf(key)));
    },
    setEnding(key, reason, graceMs) {
      const update = database.prepare(
        "update jobs set end_reason = ?, grace_ms = ? where name = ?",
      );
      unlessFull(() => file.commit(() => update.run(reason, graceMs, nameOf(key))));
    },
    remove(key) {
      return file.queue(() => {
        spool.removeJob(nameOf(key));
        database.prepare("delete from jobs where name = ?").run(nameOf(key));
      });
    },
    spoolOf: (key) => spool.ofJob(key, nameOf(key)),
    spooledBytes: spool.total,
    recallPages: memory.pages,
    checkpoint: memory.checkpoint,
    nextHello() {
      hellos += 1;
      const number = hellos;
      file.queue(() => memory.setHellos(number)).catch(() => undefined);
      return { folder, number };
    },
    setCheckpoint: (checkpoint) => file.queue(() => memory.setCheckpoint(checkpoint)),
    ...createRefusals(file),
    close() {
      spool.close();
      file.close();
    },
  };
}

function createEpochs({ database }: JournalFile) {
  const seen = database.prepare(
    `select generation, n from epochs where job_id = ?
     union all select generation, n from jobs where job_id = ?`,
  );
  // Replaced, not updated: it becomes the newest row, which goes last.
  const replace = database.prepare(
    "insert or replace into epochs (job_id, generation, n) values (?, ?, ?)",
  );
  const trim = database.prepare("delete from epochs where rowid <= ?");

  function newest(jobId: JobId): Epoch | null {
    return seen
      .all(jobId, jobId)
      .map(({ generation, n }) => ({ generation: Number(generation), n: Number(n) }))
      .reduce<Epoch | null>((a, b) => (a && compareEpochs(a, b) > 0 ? a : b), null);
  }

  return {
    newest,
    /** Inside a transaction. */
    note({ jobId, epoch }: JobKey): void {
      const known = newest(jobId);
      if (known && compareEpochs(known, epoch) >= 0) return;
      const { lastInsertRowid } = replace.run(jobId, epoch.generation, epoch.n);
      trim.run(Number(lastInsertRowid) - epochsMax);
    },
  };
}

function createRefusals({ database, commit }: JournalFile) {
  return {
    recordRefusal({ code, reason, job }: Refusal, at: string): void {
      const insert = database.prepare(
        "insert into refusals (at, code, reason, job) values (?, ?, ?, ?)",
      );
      const trim = database.prepare("delete from refusals where id <= ?");
      unlessFull(() =>
        commit(() => {
          const { lastInsertRowid } = insert.run(at, code, reason, job && JSON.stringify(job));
          trim.run(Number(lastInsertRowid) - refusalsMax);
        }),
      );
    },
    refusals: (): Refusal[] =>
      database
        .prepare("select code, reason, job from refusals order by id")
        .all()
        .map((row) => RefusalRow.parse(row))
        .map((row) => ({ ...row, job: row.job === null ? null : JSON.parse(row.job) })),
  };
}

/** What is not worth the agent's life when the disk is full. */
function unlessFull(act: () => unknown): void {
  try {
    act();
  } catch (error) {
    if (!isDiskFull(error)) throw error;
  }
}

function toJob(row: unknown): JournalJob {
  const parsed = Row.parse(row);
  return {
    key: { jobId: parsed.job_id, epoch: { generation: parsed.generation, n: parsed.n } },
    component: parsed.component,
    manifest: parsed.manifest,
    manifestDigest: parsed.manifest_digest,
    deadlineMs: parsed.deadline_ms,
    silenceMs: parsed.silence_ms,
    endReason: parsed.end_reason,
    graceMs: parsed.grace_ms,
  };
}

function nameOf(key: JobKey): string {
  return jobFolderName(key.jobId, key.epoch);
}
