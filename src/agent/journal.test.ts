/** The journal over a real file, closed and opened again. */
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, test } from "node:test";
import type { JobId } from "../model/ids.ts";
import type { Digest } from "../model/json.ts";
import { type JournalJob, openJournal } from "./journal.ts";

const root = await mkdtemp(join(tmpdir(), "landfall-journal-"));
after(() => rm(root, { recursive: true, force: true }));

const jobId = `job_${"1".repeat(24)}` as JobId;
const jobOf = (n: number): JournalJob => ({
  key: { jobId, epoch: { generation: 1, n } },
  component: "ins/web",
  manifestDigest: `sha256:${"a".repeat(64)}` as Digest,
  deadlineMs: 5,
  endReason: null,
  graceMs: 7,
});

test("jobs, how they are to end, epochs and refusals outlive the agent", () => {
  const path = join(root, "kept.db");
  const first = openJournal(path);
  first.add(jobOf(1));
  first.add(jobOf(2));
  first.setEnding(jobOf(2).key, "timed_out", 9);
  first.remove(jobOf(1).key);
  first.recordRefusal({ code: "replayed", reason: "seen", job: jobOf(1).key }, "2030-01-01");
  first.close();

  const second = openJournal(path);
  const kept = { jobs: second.jobs(), refusals: second.refusals() };
  second.close();

  assert.deepEqual(kept.jobs, [{ ...jobOf(2), endReason: "timed_out", graceMs: 9 }]);
  assert.deepEqual(kept.refusals, [{ code: "replayed", reason: "seen", job: jobOf(1).key }]);
});

test("the newest epoch of a job never goes down, and stays when the job is gone", () => {
  const journal = openJournal(join(root, "epochs.db"));

  journal.add(jobOf(3));
  journal.add(jobOf(2));
  journal.remove(jobOf(3).key);
  journal.remove(jobOf(2).key);

  assert.deepEqual(journal.newestEpoch(jobId), { generation: 1, n: 3 });
  journal.close();
});

test("a journal that another agent has open, or that a newer agent made, is refused", () => {
  const path = join(root, "busy.db");
  const first = openJournal(path);
  assert.throws(() => openJournal(path), {
    code: "conflict",
    message: /only agent in this folder/,
  });
  first.close();
  const newer = new DatabaseSync(path);
  newer.exec("pragma user_version = 99");
  newer.close();

  assert.throws(() => openJournal(path), { code: "conflict", message: /version 99/ });
});
