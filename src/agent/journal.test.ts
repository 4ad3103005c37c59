/** The journal over a real file, closed and opened again. */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, test } from "node:test";
import type { JobId } from "../model/ids.ts";
import type { Digest } from "../model/json.ts";
import type { JobEvent } from "../protocol/events.ts";
import { AgentFrame, frameBytesMax } from "../protocol/frames.ts";
import { quiet } from "./agent-bench.ts";
import { startMark } from "./events-file.ts";
import { type Journal, type JournalJob, openJournal } from "./journal.ts";

const root = await mkdtemp(join(tmpdir(), "landfall-journal-"));
after(() => rm(root, { recursive: true, force: true }));

const jobIdOf = (number: number) => `job_${String(number).padStart(24, "0")}` as JobId;
const jobOf = (n: number, number = 1): JournalJob => ({
  key: { jobId: jobIdOf(number), epoch: { generation: 1, n } },
  component: "ins/web",
  manifest: "manifest",
  manifestDigest: `sha256:${"a".repeat(64)}` as Digest,
  deadlineMs: 5,
  silenceMs: 60_000,
  endReason: null,
  graceMs: 7,
});

test("jobs, how they are to end, epochs and refusals outlive the agent", async () => {
  const path = join(root, "kept.db");
  const first = openJournal(path, quiet);
  await first.add(jobOf(1));
  await first.add(jobOf(2));
  first.setEnding(jobOf(2).key, "silent", 9);
  await first.remove(jobOf(1).key);
  first.recordRefusal({ code: "replayed", reason: "seen", job: jobOf(1).key }, "2030-01-01");
  first.close();

  const second = openJournal(path, quiet);
  const kept = { jobs: second.jobs(), refusals: second.refusals() };
  second.close();

  assert.deepEqual(kept.jobs, [{ ...jobOf(2), endReason: "silent", graceMs: 9 }]);
  assert.deepEqual(kept.refusals, [{ code: "replayed", reason: "seen", job: jobOf(1).key }]);
});

test("the newest epoch of a job never goes down, and stays when the job is gone", async () => {
  const journal = openJournal(join(root, "epochs.db"), quiet);

  await journal.add(jobOf(3));
  await journal.add(jobOf(2));
  await journal.remove(jobOf(3).key);
  await journal.remove(jobOf(2).key);

  assert.deepEqual(journal.newestEpoch(jobIdOf(1)), { generation: 1, n: 3 });
  journal.close();
});

test("of a hundred thousand epochs and more the newest are kept, and that of a job that runs", async () => {
  const path = join(root, "many-epochs.db");
  const first = openJournal(path, quiet);
  await first.add(jobOf(4, 1));
  first.close();
  const database = new DatabaseSync(path);
  database.exec(`with recursive counted (i) as (select 1 union all select i + 1 from counted where i < 100000)
    insert into epochs (job_id, generation, n) select 'job_' || printf('%024d', i + 100), 1, 1 from counted`);
  database.close();
  const journal = openJournal(path, quiet);

  await journal.add(jobOf(5, 2));
  await journal.add(jobOf(6, 3));

  assert.deepEqual(journal.newestEpoch(jobIdOf(1)), { generation: 1, n: 4 });
  assert.deepEqual(journal.newestEpoch(jobIdOf(2)), { generation: 1, n: 5 });
  await journal.remove(jobOf(4, 1).key);
  assert.equal(journal.newestEpoch(jobIdOf(1)), null, "only its running kept it");
  assert.equal(journal.newestEpoch(jobIdOf(102)), null, "the oldest gave way");
  assert.notEqual(journal.newestEpoch(jobIdOf(103)), null);
  journal.close();
});

test("a journal that another agent has open, or that a newer agent made, is refused", () => {
  const path = join(root, "busy.db");
  const first = openJournal(path, quiet);
  assert.throws(() => openJournal(path, quiet), {
    code: "conflict",
    message: /only agent in this folder/,
  });
  first.close();
  const newer = new DatabaseSync(path);
  newer.exec("pragma user_version = 99");
  newer.close();

  assert.throws(() => openJournal(path, quiet), { code: "conflict", message: /version 99/ });
});

test("a journal of version 1 becomes one of this version in place, with its jobs and epochs", async () => {
  const path = join(root, "old.db");
  const old = new DatabaseSync(path);
  old.exec(version1);
  const { jobId } = jobOf(2).key;
  old
    .prepare("insert into jobs values (?, ?, 3, 2, 'ins/web', ?, 5, 'timed_out', 7)")
    .run(`${jobId}.3.2`, jobId, jobOf(2).manifestDigest);
  old.prepare("insert into epochs values (?, 3, 2)").run(jobId);
  old.close();

  const journal = openJournal(path, quiet);
  const key = { jobId, epoch: { generation: 3, n: 2 } };
  const { mark } = journal.spoolOf(key).state();
  await journal.setManifest(key, "found");

  assert.deepEqual(journal.jobs(), [
    { ...jobOf(2), key, manifest: "found", silenceMs: null, endReason: "timed_out" },
  ]);
  assert.deepEqual(journal.newestEpoch(jobId), key.epoch);
  assert.equal(journal.newestGeneration(), 3);
  assert.deepEqual(mark, startMark);
  journal.close();
});

test("what ended is remembered with the outcome in the outbox, the last thousand, in pages that fit", async () => {
  const path = join(root, "recall.db");
  const first = openJournal(path, quiet);
  const manifest = "m".repeat(10_000);
  const numbers = Array.from({ length: 1010 }, (_, index) => index + 1);
  await Promise.all(numbers.map((number) => endJob(first, number, manifest)));
  first.close();

  const second = openJournal(path, quiet);
  const pages = [...second.recallPages()];
  second.close();

  const jobs = pages.flatMap((page) => page.jobs);
  assert.equal(jobs.length, 1000);
  assert.deepEqual(
    jobs.map(({ epoch }) => epoch.n),
    Array.from({ length: 1000 }, (_, index) => index + 11),
  );
  assert.deepEqual(
    pages.map(({ more }) => more),
    [...Array(pages.length - 1).fill(true), false],
  );
  for (const page of pages) {
    const text = JSON.stringify({ type: "recalled", ...page });
    assert(text.length < frameBytesMax);
    AgentFrame.parse(JSON.parse(text));
  }
});

test("the memory of what ended is bounded in bytes, and a diff that fills a frame is left out of it", async () => {
  const journal = openJournal(join(root, "large.db"), quiet);
  const manifest = "m".repeat(900_000);
  const digest = jobOf(1).manifestDigest;
  const digests = { planDigest: digest, diffDigest: digest, baseDigest: digest };
  const plan = { ...digests, approvalDigest: digest, changes: true, diff: "d".repeat(300_000) };
  const numbers = Array.from({ length: 80 }, (_, index) => index + 1);
  await Promise.all(
    numbers.map((number) => endJob(journal, number, manifest, number === 80 ? { plan } : {})),
  );

  const jobs = [...journal.recallPages()].flatMap((page) => page.jobs);

  assert(jobs.length < 75, `${jobs.length} jobs`);
  assert(jobs.length > 65, `${jobs.length} jobs`);
  assert.equal(jobs.at(-1)?.epoch.n, 80);
  assert.equal(jobs.at(-1)?.outcome?.plan?.diff, "");
  journal.close();
});

test("the latest checkpoint and the newest generation outlive the agent", async () => {
  const path = join(root, "facts.db");
  const first = openJournal(path, quiet);
  assert.equal(first.checkpoint(), null);
  assert.equal(first.newestGeneration(), 0);
  await first.setCheckpoint({ position: 9, mark: "a" });
  await first.setCheckpoint({ position: 4, mark: "b" });
  for (const generation of [2, 5, 3]) {
    const job = jobOf(1, generation);
    await first.add({ ...job, key: { ...job.key, epoch: { generation, n: 1 } } });
    await first.remove({ ...job.key, epoch: { generation, n: 1 } });
  }
  first.close();

  const second = openJournal(path, quiet);
  assert.deepEqual(second.checkpoint(), { position: 4, mark: "b" });
  assert.equal(second.newestGeneration(), 5);
  second.close();
});

test("a job that still runs is told last and without an outcome, and one that ended only once", async () => {
  const journal = openJournal(join(root, "running.db"), quiet);
  await journal.add({ ...jobOf(1, 1), manifest: "still runs" });
  await journal.add(jobOf(2, 2));
  const outcome = { status: "succeeded" as const };
  const event: JobEvent = { seq: 1, at: "2030", type: "outcome", outcome };
  await journal.spoolOf(jobOf(2, 2).key).append([event], { ...startMark, seq: 2 });

  const [page] = journal.recallPages();

  assert.deepEqual(page, {
    jobs: [
      { manifest: "manifest", epoch: { generation: 1, n: 2 }, outcome },
      { manifest: "still runs", epoch: { generation: 1, n: 1 }, outcome: null },
    ],
    more: false,
  });
  journal.close();
});

test("a memory of nothing is one empty last page", () => {
  const journal = openJournal(join(root, "empty.db"), quiet);

  assert.deepEqual([...journal.recallPages()], [{ jobs: [], more: false }]);
  journal.close();
});

async function endJob(
  journal: Journal,
  number: number,
  manifest: string,
  more: object = {},
): Promise<void> {
  const job = { ...jobOf(number, number), manifest };
  await journal.add(job);
  const outcome = { status: "succeeded" as const, ...more };
  const event: JobEvent = { seq: 1, at: "2030", type: "outcome", outcome };
  await journal.spoolOf(job.key).append([event], { ...startMark, seq: 2 });
  await journal.remove(job.key);
}

const version1 = `
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
  pragma user_version = 1`;
