/**
 * What an agent tells a server that was restored from an older back-up: the jobs that ended, with their
 * manifests and outcomes, those that still run, the newest checkpoint it was given, and the newest generation.
 *
 * Invariant: an outcome is remembered in the very transaction that puts it into the outbox, so what is
 * acknowledged is remembered. The memory is bounded in number and in bytes; the oldest goes first.
 */
import { randomUUID } from "node:crypto";
import type { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import type { Outcome } from "../model/job.ts";
import { OutcomeSchema } from "../protocol/events.ts";
import { Checkpoint, frameBytesMax, type Recalled } from "../protocol/frames.ts";
import { jobFolderName } from "../protocol/job-folder.ts";
import type { JobKey } from "../protocol/job-key.ts";

const endedMax = 1000;
const endedBytesMax = 64 * 1024 * 1024;
const pageJobsMax = 200;
const pageBytesMax = frameBytesMax - 4096;

type RecallPage = Omit<z.output<typeof Recalled>, "type">;

export interface RecallMemory {
  /** Inside the caller's transaction; a job that is remembered already stays as it was. */
  remember(key: JobKey, manifest: string, outcome: Outcome): void;
  /**
   * Everything that is remembered, oldest first, then what still runs, without an outcome; in pages that
   * fit into a frame, at least one.
   */
  pages(): Generator<RecallPage>;
  /** What tells this folder from every other. */
  folder(): string;
  /** How many hellos it has said. */
  hellos(): number;
  setHellos(number: number): void;
  checkpoint(): Checkpoint | null;
  /** Inside the caller's transaction. */
  setCheckpoint(checkpoint: Checkpoint): void;
  /** The newest generation of any job that was launched, 0 before the first. */
  generation(): number;
  /** Inside the caller's transaction. */
  noteGeneration(generation: number): void;
}

const Row = z.object({
  id: z.int(),
  generation: z.int(),
  n: z.int(),
  manifest: z.string(),
  outcome: z.string().nullable(),
});

/** The memory in this journal. */
export function createRecallMemory(database: DatabaseSync): RecallMemory {
  const insert = database.prepare(
    `insert into ended (name, generation, n, manifest, outcome, bytes) values (?, ?, ?, ?, ?, ?)
     on conflict (name) do nothing`,
  );
  const trim = database.prepare(
    `delete from ended where id <= (select id from (
       select id, row_number() over newest as place, sum(bytes) over newest as total
       from ended window newest as (order by id desc))
     where place > ? or total > ? order by id desc limit 1)`,
  );
  const after = database.prepare(
    "select id, generation, n, manifest, outcome from ended where id > ? order by id limit 1",
  );
  const running = database.prepare(
    `select id, generation, n, manifest, null as outcome from jobs
     where id > ? and outcome_seq is null and manifest is not null order by id limit 1`,
  );
  function* entries() {
    // Row by row: the list may change while a slow connection takes it.
    for (const statement of [after, running]) {
      for (let row = statement.get(0); row; row = statement.get(Number(row.id))) {
        yield toEntry(row);
      }
    }
  }
  const setFact = database.prepare("insert or replace into facts (name, value) values (?, ?)");
  const fact = (name: string) => {
    const row = database.prepare("select value from facts where name = ?").get(name);
    return row ? String(row.value) : null;
  };
  const generation = () => Number(fact("generation") ?? 0);
  const size = database.prepare("select count(*) as count, sum(bytes) as bytes from ended");

  return {
    remember(key, manifest, outcome) {
      const { generation, n } = key.epoch;
      const text = JSON.stringify(outcome);
      const bytes = Buffer.byteLength(manifest) + Buffer.byteLength(text);
      insert.run(jobFolderName(key.jobId, key.epoch), generation, n, manifest, text, bytes);
      const { count, bytes: total } = size.get() ?? {};
      if (Number(count) > endedMax || Number(total) > endedBytesMax) {
        trim.run(endedMax, endedBytesMax);
      }
    },
    *pages() {
      let jobs: RecallPage["jobs"] = [];
      let bytes = 0;
      for (const entry of entries()) {
        const size = Buffer.byteLength(JSON.stringify(entry)) + 1;
        if (size > pageBytesMax) continue;
        if (jobs.length === pageJobsMax || bytes + size > pageBytesMax) {
          yield { jobs, more: true };
          [jobs, bytes] = [[], 0];
        }
        jobs.push(entry);
        bytes += size;
      }
      yield { jobs, more: false };
    },
    checkpoint() {
      const text = fact("checkpoint");
      return text === null ? null : Checkpoint.parse(JSON.parse(text));
    },
    setCheckpoint(checkpoint) {
      // The latest, not the highest: a restored server's history goes on from further back.
      setFact.run("checkpoint", JSON.stringify(checkpoint));
    },
    folder() {
      const known = fact("folder");
      if (known !== null) return known;
      const fresh = randomUUID();
      setFact.run("folder", fresh);
      return fresh;
    },
    hellos: () => Number(fact("hellos") ?? 0),
    setHellos(number) {
      setFact.run("hellos", String(number));
    },
    generation,
    noteGeneration(seen) {
      if (seen > generation()) setFact.run("generation", String(seen));
    },
  };
}

/** A diff may be as large as a frame and the manifest comes on top: people have seen it, so it may go. */
function toEntry(row: unknown): RecallPage["jobs"][number] {
  const { generation, n, manifest, outcome: text } = Row.parse(row);
  if (text === null) return { manifest, epoch: { generation, n }, outcome: null };
  const outcome = OutcomeSchema.parse(JSON.parse(text));
  const entry = { manifest, epoch: { generation, n }, outcome };
  const isLarge = Buffer.byteLength(manifest) + Buffer.byteLength(text) > pageBytesMax - 1024;
  if (!isLarge || !outcome.plan) return entry;
  return { ...entry, outcome: { ...outcome, plan: { ...outcome.plan, diff: "" } } };
}
