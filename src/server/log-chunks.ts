/**
 * The lines of jobs: chunks in the blob store, keyed by job, epoch and first number, or in a page that
 * many jobs share (`log-pages.ts`); one small index row each. The blob is written before its row, so a
 * row never points at nothing.
 *
 * Invariant: the chunks of one epoch follow each other without hole or overlap. Each starts at the
 * number after the last stored one, and the primary key lets only one writer take that number: of two
 * that bring the same stretch, the second finds the row and goes on after it. A `gap` event stands for
 * all the numbers that gave way, so a lost stretch is as visible as a stored one.
 */
import { Fault } from "../model/fault.ts";
import { type Epoch, formatEpoch, isFinished, type JobState } from "../model/job.ts";
import { type JobEvent, lastSeqOf } from "../protocol/events.ts";
import type { JobKey } from "../protocol/job-key.ts";
import type { ServerContext } from "./context.ts";
import { isDatabaseError } from "./database.ts";
import { noJob } from "./views/jobs.ts";

/** Two writers meet when an agent reconnects; more than a few times in a row is a bug. */
const appendAttemptsMax = 5;
const seqDigits = 10;
const foreignKeyViolation = "23503";

interface Chunk {
  readonly generation: number;
  readonly n: number;
  readonly first_seq: number;
  readonly last_seq: number;
}

interface StoredChunk extends Chunk {
  readonly size_bytes: number;
  /** The page it is in; null: a blob of its own. */
  readonly blob: string | null;
  readonly blob_offset: number | null;
}

export interface StoredEvents {
  readonly epoch: Epoch | null;
  readonly events: readonly JobEvent[];
  /** True when chunks after these are stored already. */
  readonly more: boolean;
}

/**
 * Stores a stretch of events and returns the last number that is stored now. What is there already is
 * left out, since agents send a stretch again until it is acknowledged; a hole is refused.
 */
export async function appendEvents(
  context: ServerContext,
  key: JobKey,
  events: readonly JobEvent[],
): Promise<number> {
  for (let attempt = 0; attempt < appendAttemptsMax; attempt++) {
    const last = await lastStored(context, key);
    const fresh = freshStretch(key, events, last);
    if (!fresh) return last;
    if (await storeChunk(context, key, fresh)) {
      context.wake.notify(`log:${key.jobId}`);
      return fresh.lastSeq;
    }
  }
  throw new Fault(
    "conflict",
    `Expected one writer of the lines of job ${key.jobId}, got several at once. Send them again.`,
  );
}

/** The number of the last stored event of this try, 0 when there is none. */
export async function lastStored(context: ServerContext, key: JobKey): Promise<number> {
  const [row] = await context.database.query<{ last_seq: number }>(
    `select last_seq from log_chunks where job_id = $1 and generation = $2 and n = $3
     order by first_seq desc limit 1`,
    [key.jobId, key.epoch.generation, key.epoch.n],
  );
  return row?.last_seq ?? 0;
}

/** Events with numbers after `after`, at most about `limit`, of the newest try unless one is named. */
export async function readEvents(
  context: ServerContext,
  jobId: string,
  { epoch, after, limit }: { epoch?: Epoch; after: number; limit: number },
): Promise<StoredEvents> {
  const chosen = epoch ?? (await newestEpoch(context, jobId));
  if (!chosen) return { epoch: null, events: [], more: false };
  // A chunk holds at least one event, so `limit` chunks are always enough.
  const chunks = await context.database.query<StoredChunk>(
    `select generation, n, first_seq, last_seq, size_bytes, blob, blob_offset from log_chunks
     where job_id = $1 and generation = $2 and n = $3 and last_seq > $4
     order by first_seq limit $5`,
    [jobId, chosen.generation, chosen.n, after, limit],
  );
  const events: JobEvent[] = [];
  let read = 0;
  for (const chunk of chunks) {
    if (events.length >= limit) break;
    for (const event of await readChunk(context, jobId, chunk)) {
      if (lastSeqOf(event) > after) events.push(event);
    }
    read++;
  }
  return { epoch: chosen, events, more: read < chunks.length || chunks.length === limit };
}

/** The state of a job, for whoever waits for its lines; `Fault` when there is none. */
export async function isJobFinished(context: ServerContext, jobId: string): Promise<boolean> {
  const [row] = await context.database.query<{ state: JobState }>(
    "select state from jobs where id = $1",
    [jobId],
  );
  if (!row) throw noJob(jobId);
  return isFinished(row.state);
}

/** Events that follow what is stored, and the numbers that they stand for. */
export interface Stretch {
  readonly firstSeq: number;
  readonly lastSeq: number;
  readonly events: readonly JobEvent[];
}

/** What of these is not stored yet, null when all is; a hole is refused. */
export function freshStretch(
  key: JobKey,
  events: readonly JobEvent[],
  last: number,
): Stretch | null {
  const fresh = eventsAfter(events, last);
  refuseHole(key, last, fresh);
  const [first, final] = [fresh[0], fresh.at(-1)];
  if (!first || !final) return null;
  return { firstSeq: first.seq, lastSeq: lastSeqOf(final), events: fresh };
}

/** A chunk's bytes: a line of JSON per event. */
export function encodeEvents(events: readonly JobEvent[]): Buffer {
  return Buffer.from(events.map((event) => `${JSON.stringify(event)}\n`).join(""));
}

/** What is not stored yet. A gap that begins in what is stored stands for its rest alone. */
function eventsAfter(events: readonly JobEvent[], last: number): JobEvent[] {
  return events
    .filter((event) => lastSeqOf(event) > last)
    .map((event) => (event.seq > last ? event : { ...event, seq: last + 1 }));
}

function refuseHole(key: JobKey, last: number, fresh: readonly JobEvent[]): void {
  let expected = last + 1;
  for (const event of fresh) {
    if (event.seq !== expected || lastSeqOf(event) < event.seq) {
      throw new Fault(
        "conflict",
        `Expected event ${expected} of job ${key.jobId}, got ${event.seq}. Send again from ${expected}.`,
      );
    }
    expected = lastSeqOf(event) + 1;
  }
}

/** False when another writer has taken this number meanwhile. */
async function storeChunk(
  context: ServerContext,
  key: JobKey,
  { firstSeq, lastSeq, events }: Stretch,
): Promise<boolean> {
  const { generation, n } = key.epoch;
  const content = encodeEvents(events);
  const chunk = { generation, n, first_seq: firstSeq, last_seq: lastSeq };
  await context.blobs.write(chunkKey(key.jobId, chunk), content);
  try {
    const rows = await context.database.query(
      `insert into log_chunks (job_id, generation, n, first_seq, last_seq, size_bytes)
       values ($1, $2, $3, $4, $5, $6) on conflict do nothing returning job_id`,
      [key.jobId, generation, n, firstSeq, lastSeq, content.byteLength],
    );
    return rows.length > 0;
  } catch (error) {
    if (isDatabaseError(error, foreignKeyViolation)) throw noJob(key.jobId);
    throw error;
  }
}

async function readChunk(
  context: ServerContext,
  jobId: string,
  chunk: StoredChunk,
): Promise<readonly JobEvent[]> {
  const { blob, blob_offset: offset, size_bytes: sizeBytes } = chunk;
  const name = blob ?? chunkKey(jobId, chunk);
  const content =
    blob !== null && offset !== null
      ? await context.blobs.readPart(blob, offset, sizeBytes)
      : await context.blobs.read(name);
  if (!content) throw new Error(`Blob ${name} is in the index but not in the store.`);
  const lines = new TextDecoder().decode(content).split("\n");
  return lines.filter((line) => line !== "").map((line) => JSON.parse(line) as JobEvent);
}

/** The last number is in the key too: a late writer's shorter stretch never replaces a longer one. */
function chunkKey(jobId: string, chunk: Chunk): string {
  const first = String(chunk.first_seq).padStart(seqDigits, "0");
  return `logs/${jobId}/${formatEpoch(chunk)}/${first}-${chunk.last_seq}`;
}

async function newestEpoch(context: ServerContext, jobId: string): Promise<Epoch | null> {
  const [row] = await context.database.query<Epoch>(
    `select generation, n from log_chunks where job_id = $1
     order by generation desc, n desc limit 1`,
    [jobId],
  );
  return row ?? null;
}
