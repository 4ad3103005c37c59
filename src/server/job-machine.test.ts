/** Every test queues real jobs in a real PostgreSQL; time is the database's own. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, beforeEach, test } from "node:test";
import { createServerContext, type TestServer } from "../../test/server-context.ts";
import { type AgentId, createId, type JobId } from "../model/ids.ts";
import type { JobKey } from "../protocol/job-key.ts";
import {
  type Asker,
  expireLeases,
  finishJob,
  loseJob,
  type NewJob,
  nackJob,
  offerJobs,
  queueJobs,
  renewLeases,
  requestCancel,
  restartLeases,
  startJob,
} from "./job-machine.ts";

let server: TestServer;
const [first, second] = ["agt_first", "agt_second"] as unknown as [AgentId, AgentId];
const install = "ins_acme";

before(async () => {
  server = await createServerContext();
  await server.database.query("insert into apps (id, name) values ('app_a', 'a')");
  await server.database.query(
    "insert into installs (id, app_id, name, sandbox_type) values ($1, 'app_a', 'acme', 'local')",
    [install],
  );
  await server.database.query(
    `insert into agents (id, role, public_key, connection, connected_at)
     select id, 'build', id, 'newest', now() from unnest($1::text[]) as id`,
    [[first, second]],
  );
});
after(() => server.close());
beforeEach(() => server.database.query("truncate jobs, events cascade"));

test("each job goes to one agent, however many ask at once", async () => {
  const queued = await queue(20);

  const offers = await Promise.all(
    Array.from({ length: 30 }, () => offerJobs(server.database, ask(first), install, 1)),
  );

  assert.deepEqual(
    offers
      .flat()
      .map((job) => job.id)
      .sort(),
    queued.sort(),
  );
});

test("a claim takes the oldest jobs first, and no more than there are slots", async () => {
  const queued = await queue(5);

  const offers = await offerJobs(server.database, ask(first), install, 3);

  assert.deepEqual(offers.map((job) => job.id).sort(), queued.slice(0, 3).sort());
});

test("a job of a higher priority goes first", async () => {
  await queue(3);
  const [urgent] = await queue(1, { component: "urgent", priority: 1 });

  const offers = await offerJobs(server.database, ask(first), install, 1);

  assert.deepEqual(
    offers.map((job) => job.id),
    [urgent],
  );
});

test("an agent never sees another install's jobs", async () => {
  await queue(1);

  assert.deepEqual(await offerJobs(server.database, ask(first), "ins_other", 1), []);
});

test("every offer is a new epoch, and only the newest is believed", async () => {
  await queue(1);
  const old = await offer(first);
  await nackJob(server.database, first, old, "no slot");
  await clearBackoff();
  const current = await offer(first);

  assert.equal(current.epoch.n, old.epoch.n + 1);
  assert.equal(await finishJob(server.database, first, old, { status: "succeeded" }), null);
  assert.equal(await startJob(server.database, first, current), true);
  assert.equal(await finishJob(server.database, first, current, { status: "succeeded" }), "ended");
});

test("only the agent that holds a job can end it", async () => {
  await queue(1);
  const key = await offer(first);

  assert.equal(await finishJob(server.database, second, key, { status: "succeeded" }), null);
});

test("a second outcome changes nothing, and nothing else can change an ended job", async () => {
  const [id] = await queue(1);
  const key = await offer(first);
  await finishJob(server.database, first, key, { status: "failed", message: "first" });

  assert.equal(await finishJob(server.database, first, key, { status: "succeeded" }), null);
  await assert.rejects(server.database.query("update jobs set priority = 9"), /never changes/);
  assert.equal(await stateOf(id), "failed");
});

test("silence never hands on an install's job: it is unreachable until its own agent speaks", async () => {
  const [id] = await queue(1);
  const key = await offer(first);
  await startJob(server.database, first, key);
  await lapse();

  await expireLeases(server.database);

  assert.equal(await stateOf(id), "unreachable");
  assert.deepEqual(await offerJobs(server.database, ask(second), install, 1), []);
  await renewLeases(server.database, first, [key]);
  assert.equal(await stateOf(id), "running");
});

test("an unreachable job that ended meanwhile takes its outcome, same epoch", async () => {
  const [id] = await queue(1);
  const key = await offer(first);
  await startJob(server.database, first, key);
  await lapse();
  await expireLeases(server.database);

  assert.equal(await finishJob(server.database, first, key, { status: "succeeded" }), "ended");
  assert.equal(await stateOf(id), "succeeded");
});

test("a build whose agent fell silent goes back to its queue, for any agent", async () => {
  const [id] = await queue(1, { queue: "build", installId: null });
  await offerJobs(server.database, ask(first), "build", 1);
  await lapse();

  await expireLeases(server.database);

  assert.equal(await stateOf(id), "queued");
  const [again] = await offerJobs(server.database, ask(second), "build", 1);
  assert.equal(again?.n, 2);
});

test("a job that is lost too often fails, and the events tell the whole story", async () => {
  const [id] = await queue(1);
  for (let attempt = 1; attempt <= 3; attempt++) {
    await clearBackoff();
    const key = await offer(first);
    await startJob(server.database, first, key);
    await loseJob(server.database, first, key, "killed");
  }

  const events = await server.database.query<{ kind: string }>(
    "select kind from events where job_id = $1 order by id",
    [id],
  );
  assert.deepEqual(
    events.map((event) => event.kind.slice(4)),
    "queued offered running queued offered running queued offered running failed".split(" "),
  );
});

test("a job that its agent has no room for goes back as often as it takes, and loses no attempt", async () => {
  const [id] = await queue(1);
  for (let attempt = 1; attempt <= 5; attempt++) {
    await nackJob(server.database, first, await offer(first), "no slot");
    await clearBackoff();
  }

  assert.equal(await stateOf(id), "queued");
  await loseJob(server.database, first, await offer(first), "killed");
  assert.equal(await stateOf(id), "queued");
});

test("a lost job waits a moment before it is tried again", async () => {
  await queue(1);
  const key = await offer(first);
  await loseJob(server.database, first, key, "killed");

  assert.deepEqual(await offerJobs(server.database, ask(first), install, 1), []);
});

test("cancel ends a queued job at once, and asks for a running one", async () => {
  const [waiting, running] = await queue(2);
  const key = await offer(first);
  await startJob(server.database, first, key);
  const other = key.jobId === waiting ? running : waiting;

  assert.equal(await requestCancel(server.database, other ?? ""), true);
  assert.equal(await requestCancel(server.database, key.jobId), true);

  assert.equal(await stateOf(other), "cancelled");
  assert.equal(await stateOf(key.jobId), "running");
});

test("a cancelled job whose executor is gone is cancelled, not tried again", async () => {
  const [id] = await queue(1);
  const key = await offer(first);
  await requestCancel(server.database, key.jobId);

  await loseJob(server.database, first, key, "killed");

  assert.equal(await stateOf(id), "cancelled");
});

test("a server that was away does not count as its agents' silence", async () => {
  const [id] = await queue(1);
  const key = await offer(first);
  await startJob(server.database, first, key);
  await lapse();

  await restartLeases(server.database);
  await expireLeases(server.database);

  assert.equal(await stateOf(id), "running");
});

test("two unfinished jobs of one component cannot exist", async () => {
  const [id] = await queue(1);

  const again = await queueJobs(server.database, [newJob({ component: "c0" })]);

  assert.deepEqual(again, []);
  assert.equal(await stateOf(id), "queued");
});

async function queue(count: number, change: Partial<NewJob> = {}): Promise<JobId[]> {
  const jobs = Array.from({ length: count }, (_, index) =>
    newJob({ component: `c${index}`, ...change }),
  );
  for (const job of jobs) await queueJobs(server.database, [job]);
  return jobs.map((job) => job.id);
}

function newJob(change: Partial<NewJob>): NewJob {
  return {
    id: createId("job", new Date(), randomBytes),
    queue: install,
    operation: "plan",
    appId: "app_a",
    installId: install,
    component: "c",
    manifest: "m",
    manifestDigest: "d",
    fingerprint: null,
    artifactDigest: null,
    deploy: 1,
    generation: 1,
    priority: 0,
    startSeconds: null,
    retry: { attempts: 3, on: ["unavailable"], backoffSeconds: 0.5, backoffSecondsMax: 4 },
    ...change,
  };
}

function ask(agentId: AgentId, connection = "newest"): Asker {
  return { agentId, connection };
}

async function offer(agent: AgentId): Promise<JobKey> {
  const [job] = await offerJobs(server.database, ask(agent), install, 1);
  assert(job);
  return { jobId: job.id, epoch: { generation: job.generation, n: job.n } };
}

async function stateOf(id: string | undefined): Promise<string | undefined> {
  const [job] = await server.database.query<{ state: string }>(
    "select state from jobs where id = $1",
    [id],
  );
  return job?.state;
}

function lapse(): Promise<object[]> {
  return server.database.query(
    "update jobs set lease_expires_at = clock_timestamp() - interval '1 second' where agent_id is not null",
  );
}

function clearBackoff(): Promise<object[]> {
  return server.database.query(
    "update jobs set not_before = clock_timestamp() where outcome is null",
  );
}
