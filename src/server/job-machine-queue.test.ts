/**
 * What the job machine holds besides its rules: how long a job waits for its next attempt, whose turn
 * it is, who gets nothing, and when a limit to start counts. Real PostgreSQL; time is the database's.
 */
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { addAgent, addApp, addInstall, ask, makePast, newJob } from "../../test/job-rows.ts";
import { createServerContext, type TestServer } from "../../test/server-context.ts";
import type { AgentId, InstallId, JobId } from "../model/ids.ts";
import { backoffSeconds } from "../model/job-rules.ts";
import type { JobKey } from "../protocol/job-key.ts";
import {
  expireStarts,
  finishJob,
  loseJob,
  type NewJob,
  nackJob,
  offerJobs,
  queueJobs,
  resumeStarts,
  startJob,
} from "./job-machine.ts";

let server: TestServer;
let install: InstallId;
let agent: AgentId;
let builder: AgentId;
/** Between a backoff's computation and its reading. */
const slackSeconds = 5;

before(async () => {
  server = await createServerContext();
  for (const app of ["app_a", "app_b", "app_c"]) await addApp(server.database, app);
});
after(() => server.close());
beforeEach(async () => {
  await server.database.query("truncate jobs, events cascade");
  install = await addInstall(server.database);
  agent = await addAgent(server.database, install);
  builder = await addAgent(server.database, null);
});

test("the wait before the next attempt doubles with every one that is used up, and is capped", async () => {
  const retry = {
    attempts: 7,
    on: ["unavailable" as const],
    backoffSeconds: 100,
    backoffSecondsMax: 1000,
  };
  const [id] = await queue([newJob(install, { retry })]);
  const waits: number[] = [];

  for (let used = 1; used < retry.attempts; used++) {
    const key = await offerOne();
    await startJob(server.database, agent, key);
    const isLoss = used % 2 === 0; // losses and failures count together
    if (isLoss) await loseJob(server.database, agent, key, "killed");
    else await fail(key);
    const wait = await waitOf(id);
    assert(Math.abs(wait - backoffSeconds(retry, used)) < slackSeconds, `${used}: ${wait}`);
    waits.push(Math.round(wait / 100) * 100);
  }

  assert.deepEqual(waits, [100, 200, 400, 800, 1000, 1000]);
  await fail(await offerOne());
  assert.equal(await stateOf(id), "failed");
});

test("a job that waits for its next attempt is not offered before its time", async () => {
  await queue([newJob(install)]);
  await fail(await offerKey());

  assert.deepEqual(await take(agent, install, 1), []);
});

test("an agent without room is asked again soon, and never later than in 16 seconds", async () => {
  const [id] = await queue([newJob(install)]);
  const waits: number[] = [];

  for (let time = 1; time <= 8; time++) {
    await nackJob(server.database, agent, await offerOne(), "no slot");
    waits.push(await waitOf(id));
  }

  assert(Number(waits[0]) <= 0.5);
  assert(Math.max(...waits) <= 16);
});

test("a party with a hundred jobs in the shared queue does not keep the others waiting", async () => {
  await queue(jobsOf("app_a", 100));
  await queue(jobsOf("app_b", 2));
  await queue(jobsOf("app_c", 1));

  const parties = await takeTurns(6);

  assert.deepEqual(parties.slice(0, 3).sort(), ["app_a", "app_b", "app_c"]);
  assert.deepEqual(parties.slice(3).sort(), ["app_a", "app_a", "app_b"]);
});

test("a party that comes later does not wait behind the whole backlog, nor go before all of it", async () => {
  await queue(jobsOf("app_a", 100));
  await takeTurns(40);

  await queue(jobsOf("app_b", 30));

  const parties = await takeTurns(10);
  assert.equal(parties.filter((party) => party === "app_b").length, 5);
});

test("jobs that are queued one by one have the same turns as those queued at once", async () => {
  for (const job of jobsOf("app_a", 10)) await queue([job]);
  await queue(jobsOf("app_b", 3));

  const parties = await takeTurns(6);

  assert.equal(parties.filter((party) => party === "app_b").length, 3);
});

test("a priority wins over turns, and has turns of its own", async () => {
  await queue(jobsOf("app_a", 50));
  await queue(jobsOf("app_b", 20, { priority: 1 }));
  await queue(jobsOf("app_a", 1, { priority: 1 }));

  const parties = await takeTurns(21);

  assert(parties.indexOf("app_a") <= 2, String(parties));
  assert.deepEqual([...new Set(await takeTurns(5))], ["app_a"]);
});

test("an install runs no more jobs at once than it allows, however many slots its agent has", async () => {
  await server.database.query("update installs set jobs_max = 2 where id = $1", [install]);
  const components = ["a", "b", "c", "d"];
  await queue(components.map((component) => newJob(install, { component })));

  const taken = await take(agent, install, 10);

  assert.equal(taken.length, 2);
  assert.deepEqual(await take(agent, install, 10), []);
  await finishJob(server.database, agent, keyOf(taken[0]), { status: "succeeded" });
  assert.equal((await take(agent, install, 10)).length, 1);
});

test("a paused install, and one that was restored and not recalled yet, gets nothing until it is over", async () => {
  await queue([newJob(install)]);

  await pause();
  assert.deepEqual(await take(agent, install, 1), []);
  await resume();
  await set("installs", "recall_since = clock_timestamp()", install);
  assert.deepEqual(await take(agent, install, 1), []);
  await set("installs", "recall_since = null", install);

  assert.equal((await take(agent, install, 1)).length, 1);
});

test("a provision job of a paused install stays in the shared queue, and others pass it", async () => {
  await queue([newJob(install, { queue: "build", component: null, operation: "provision" })]);
  const [other] = await queue(jobsOf("app_b", 1));
  await pause();

  const taken = await take(builder, "build", 10);

  assert.deepEqual(
    taken.map((job) => job.id),
    [other],
  );
});

test("an agent that is draining, revoked, or superseded by a newer connection gets nothing", async () => {
  await queue([newJob(install)]);

  assert.deepEqual(await offerJobs(server.database, ask(agent, "older"), install, 1), []);
  await set("agents", "draining_at = clock_timestamp(), drain_reason = 'upgrade'", agent);
  assert.deepEqual(await take(agent, install, 1), []);
  await set("agents", "draining_at = null, drain_reason = null", agent);
  await set("agents", "revoked_at = clock_timestamp()", agent);
  assert.deepEqual(await take(agent, install, 1), []);
  await set("agents", "revoked_at = null", agent);

  assert.equal((await take(agent, install, 1)).length, 1);
});

test("a job that no agent began in time fails as not started, and says why it waited", async () => {
  const [id] = await queue([newJob(install, { startSeconds: 60 })]);
  await nackJob(server.database, agent, await offerKey(), "Expected a free slot, got none.");
  assert.deepEqual(await expireStarts(server.database), []);
  await makePast(server.database, "start_by", id);

  assert.deepEqual(await expireStarts(server.database), [id]);

  const [job] = await server.database.query<{ outcome: { code: string; message: string } }>(
    "select outcome from jobs where id = $1",
    [id],
  );
  assert.equal(job?.outcome.code, "not_started");
  assert.match(job?.outcome.message ?? "", /No agent began it by .*Expected a free slot/);
});

test("a job that was begun in time and waits for its next attempt has kept its limit to start", async () => {
  const [id] = await queue([newJob(install, { startSeconds: 60 })]);
  await fail(await offerKey());
  await makePast(server.database, "start_by", id);

  assert.deepEqual(await expireStarts(server.database), []);
  assert.equal(await stateOf(id), "queued");
});

test("the time in a pause does not count against the limit to start", async () => {
  const [id] = await queue([newJob(install, { startSeconds: 60 })]);
  await set("jobs", "created_at = created_at - interval '1 hour'", id);
  await makePast(server.database, "start_by", id);
  await pause();
  await set("installs", "paused_at = paused_at - interval '10 minutes'", install);
  assert.deepEqual(await expireStarts(server.database), []);

  await resumeStarts(server.database, install, "paused_at");
  await resume();

  assert.deepEqual(await expireStarts(server.database), []);
  await assertStartIn(id, 10 * 60);
});

test("a job that was queued during a pause has its whole limit to start after it", async () => {
  await pause();
  await set("installs", "paused_at = paused_at - interval '10 minutes'", install);
  const [id] = await queue([newJob(install, { startSeconds: 60 })]);

  await resumeStarts(server.database, install, "paused_at");

  await assertStartIn(id, 60);
});

test("a pause and a restore at the same time move a limit to start on once, not twice", async () => {
  const [id] = await queue([newJob(install, { startSeconds: 60 })]);
  await set("jobs", "created_at = created_at - interval '1 hour'", id);
  await pause();
  await set("installs", "paused_at = paused_at - interval '10 minutes'", install);
  await set("installs", "recall_since = clock_timestamp() - interval '4 minutes'", install);

  await resumeStarts(server.database, install, "paused_at");
  await resume();
  await assertStartIn(id, 60 + 6 * 60);
  await resumeStarts(server.database, install, "recall_since");

  await assertStartIn(id, 60 + 10 * 60);
});

async function assertStartIn(id: JobId, seconds: number): Promise<void> {
  const [job] = await server.database.query<{ seconds: number }>(
    "select extract(epoch from start_by - clock_timestamp())::float8 as seconds from jobs where id = $1",
    [id],
  );
  assert(Math.abs(Number(job?.seconds) - seconds) < slackSeconds, String(job?.seconds));
}

async function queue(jobs: readonly NewJob[]): Promise<[JobId, ...JobId[]]> {
  const [first, ...rest] = await queueJobs(server.database, jobs);
  assert(first);
  return [first, ...rest];
}

function jobsOf(appId: string, count: number, change: Partial<NewJob> = {}): NewJob[] {
  return Array.from({ length: count }, () => newJob(null, { appId, ...change }));
}

function take(asker: AgentId, from: string, limit: number) {
  return offerJobs(server.database, ask(asker), from, limit);
}

/** Offers one at a time; whose jobs they were, in order. */
async function takeTurns(count: number): Promise<string[]> {
  const parties: string[] = [];
  for (let turn = 0; turn < count; turn++) {
    const [job] = await take(builder, "build", 1);
    const [row] = await server.database.query<{ party: string }>(
      "select party from jobs where id = $1",
      [job?.id],
    );
    parties.push(row?.party ?? "");
  }
  return parties;
}

function keyOf(job: { id: JobId; generation: number; n: number } | undefined): JobKey {
  assert(job);
  return { jobId: job.id, epoch: { generation: job.generation, n: job.n } };
}

async function offerKey(): Promise<JobKey> {
  return keyOf((await take(agent, install, 1))[0]);
}

/** The next offer, without waiting for the backoff. */
async function offerOne(): Promise<JobKey> {
  await server.database.query("update jobs set not_before = now() where outcome is null");
  return offerKey();
}

function fail(key: JobKey) {
  return finishJob(server.database, agent, key, { status: "failed", code: "unavailable" });
}

async function waitOf(id: JobId): Promise<number> {
  const [job] = await server.database.query<{ seconds: number }>(
    "select extract(epoch from not_before - clock_timestamp())::float8 as seconds from jobs where id = $1",
    [id],
  );
  return Number(job?.seconds);
}

async function stateOf(id: JobId): Promise<string | undefined> {
  const [job] = await server.database.query<{ state: string }>(
    "select state from jobs where id = $1",
    [id],
  );
  return job?.state;
}

function set(table: "agents" | "installs" | "jobs", change: string, id: string) {
  return server.database.query(`update ${table} set ${change} where id = $1`, [id]);
}

function pause() {
  const change = "paused_at = clock_timestamp(), paused_by = 'token:t', pause_reason = 'holiday'";
  return set("installs", change, install);
}

function resume() {
  return set("installs", "paused_at = null, paused_by = null, pause_reason = null", install);
}
