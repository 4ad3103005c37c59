/**
 * The agent's journal: what it launched, which epochs it has seen, what it refused. SQLite, flushed at
 * every commit, so nothing here is forgotten by kill -9 or a loss of power.
 *
 * Invariant: the newest epoch seen of a job never goes down and outlives the job's folder, so an old
 * offer can never start anything again. The file is locked: one agent per folder.
 */
import { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import { Fault } from "../model/fault.ts";
import type { JobId } from "../model/ids.ts";
import type { Epoch } from "../model/job.ts";
import type { Digest } from "../model/json.ts";
import { jobFolderName } from "../protocol/job-folder.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { DigestText, JobIdText } from "../protocol/json-schema.ts";

const schemaVersion = 1;
const refusalsMax = 10_000;
const lockWaitMs = 1000;
/** SQLite's own number for "another process has it locked". */
const sqliteBusy = 5;

/** Why the agent itself brings an executor to its end. */
export type EndReason = "cancelled" | "timed_out";

/** What must be known of a job to watch it again after a restart. */
export interface JournalJob {
  readonly key: JobKey;
  /** What it works on, so that two never work on the same thing; null for builds. */
  readonly component: string | null;
  readonly manifestDigest: Digest;
  /** On the machine's monotonic clock, which goes on while the agent is away. */
  readonly deadlineMs: number;
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
  /** Records a job and its epoch in one step, before it is launched. */
  add(job: JournalJob): void;
  setEnding(key: JobKey, reason: EndReason, graceMs: number): void;
  /** Forgets the job; its epoch stays. */
  remove(key: JobKey): void;
  recordRefusal(refusal: Refusal, at: string): void;
  refusals(): Refusal[];
  close(): void;
}

const Row = z.object({
  job_id: JobIdText,
  generation: z.int(),
  n: z.int(),
  component: z.string().nullable(),
  manifest_digest: DigestText,
  deadline_ms: z.number(),
  end_reason: z.enum(["cancelled", "timed_out"]).nullable(),
  grace_ms: z.number(),
});

const RefusalRow = z.object({ code: z.string(), reason: z.string(), job: z.string().nullable() });

/** Opens (or makes) the journal; a `Fault` when another agent has it open. */
export function openJournal(path: string): Journal {
  const database = openDatabase(path);
  const addJob = database.prepare(
    `insert into jobs (name, job_id, generation, n, component, manifest_digest, deadline_ms, grace_ms)
     values (?, ?, ?, ?, ?, ?, ?, ?)`,
  );
  const addEpoch = database.prepare(
    `insert into epochs (job_id, generation, n) values (?, ?, ?)
     on conflict (job_id) do update set generation = excluded.generation, n = excluded.n
     where (excluded.generation, excluded.n) > (generation, n)`,
  );
  return {
    jobs: () => database.prepare("select * from jobs order by name").all().map(toJob),
    newestEpoch(jobId) {
      const row = database.prepare("select generation, n from epochs where job_id = ?").get(jobId);
      return row ? { generation: Number(row.generation), n: Number(row.n) } : null;
    },
    add({ key, component, manifestDigest, deadlineMs, graceMs }) {
      const { jobId, epoch } = key;
      inTransaction(database, () => {
        addEpoch.run(jobId, epoch.generation, epoch.n);
        const name = nameOf(key);
        const { generation, n } = epoch;
        addJob.run(name, jobId, generation, n, component, manifestDigest, deadlineMs, graceMs);
      });
    },
    setEnding(key, reason, graceMs) {
      database
        .prepare("update jobs set end_reason = ?, grace_ms = ? where name = ?")
        .run(reason, graceMs, nameOf(key));
    },
    remove(key) {
      database.prepare("delete from jobs where name = ?").run(nameOf(key));
    },
    recordRefusal({ code, reason, job }, at) {
      inTransaction(database, () => {
        const { lastInsertRowid } = database
          .prepare("insert into refusals (at, code, reason, job) values (?, ?, ?, ?)")
          .run(at, code, reason, job && JSON.stringify(job));
        database
          .prepare("delete from refusals where id <= ?")
          .run(Number(lastInsertRowid) - refusalsMax);
      });
    },
    refusals: () =>
      database
        .prepare("select code, reason, job from refusals order by id")
        .all()
        .map((row) => RefusalRow.parse(row))
        .map((row) => ({ ...row, job: row.job === null ? null : JSON.parse(row.job) })),
    close: () => database.close(),
  };
}

function openDatabase(path: string): DatabaseSync {
  const database = new DatabaseSync(path);
  try {
    // Exclusive: the lock is taken by the first write and held until the process ends, however it ends.
    database.exec(`pragma busy_timeout = ${lockWaitMs};
      pragma locking_mode = exclusive; pragma journal_mode = wal; pragma synchronous = full`);
    inTransaction(database, () => migrate(database, path));
    return database;
  } catch (error) {
    database.close();
    if (isBusy(error)) {
      throw new Fault(
        "conflict",
        `Expected to be the only agent in this folder, but another one has ${path} open. Stop it first.`,
        { cause: error },
      );
    }
    throw error;
  }
}

function isBusy(error: unknown): boolean {
  return error instanceof Error && "errcode" in error && error.errcode === sqliteBusy;
}

function migrate(database: DatabaseSync, path: string): void {
  const version = Number(database.prepare("pragma user_version").get()?.user_version);
  if (version > schemaVersion) {
    throw new Fault(
      "conflict",
      `Expected a journal of version ${schemaVersion} or older in ${path}, got version ${version}. Start the newer agent that made it.`,
    );
  }
  if (version === schemaVersion) return;
  database.exec(`
    create table jobs (
      name text primary key, job_id text not null, generation integer not null, n integer not null,
      component text, manifest_digest text not null, deadline_ms real not null,
      end_reason text check (end_reason in ('cancelled', 'timed_out')), grace_ms real not null
    ) strict;
    create table epochs (
      job_id text primary key, generation integer not null, n integer not null
    ) strict;
    create table refusals (
      id integer primary key autoincrement, at text not null,
      code text not null, reason text not null, job text
    ) strict;
    pragma user_version = ${schemaVersion}`);
}

function inTransaction(database: DatabaseSync, act: () => void): void {
  database.exec("begin immediate");
  try {
    act();
    database.exec("commit");
  } catch (error) {
    database.exec("rollback");
    throw error;
  }
}

function toJob(row: unknown): JournalJob {
  const parsed = Row.parse(row);
  return {
    key: { jobId: parsed.job_id, epoch: { generation: parsed.generation, n: parsed.n } },
    component: parsed.component,
    manifestDigest: parsed.manifest_digest,
    deadlineMs: parsed.deadline_ms,
    endReason: parsed.end_reason,
    graceMs: parsed.grace_ms,
  };
}

function nameOf(key: JobKey): string {
  return jobFolderName(key.jobId, key.epoch);
}
