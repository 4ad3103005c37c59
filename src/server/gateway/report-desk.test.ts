/** Reports of many agents in one batch, on a real PostgreSQL and real blobs: each has its own right end. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import { addAgent, addApp, addInstall, ask } from "../../../test/job-rows.ts";
import { createServerContext, type TestServer } from "../../../test/server-context.ts";
import { type AgentId, createId, type InstallId } from "../../model/ids.ts";
import type { Outcome } from "../../model/job.ts";
import type { JobEvent } from "../../protocol/events.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import type { ServerContext } from "../context.ts";
import type { NewJob } from "../job-machine.ts";
import { offerJobs, queueJobs } from "../job-machine.ts";
import { readEvents } from "../log-chunks.ts";
import { createJob } from "../manifest.ts";
import { createReportDesk } from "./report-desk.ts";
import type { Report } from "./reports.ts";

const appId = createId("app", new Date(), randomBytes);
let server: TestServer;
before(async () => {
  server = await createServerContext();
  await addApp(server.database, appId);
});
after(() => server.close());

const at = "2030-01-01T00:00:00Z";

test("reports of many agents are one transaction, each with its own end and in the name of its own agent", async () => {
  const [lead, good, stale, foreign, retried, whole] = await offered(6);
  const { context, transactions } = counting();
  const desk = createReportDesk(context);
  const older = { ...stale.key, epoch: { generation: 1, n: 0 } };

  // The first goes at once; the others come meanwhile, and go together.
  const results = await Promise.all([
    desk.take(lead.agentId, { type: "accepted", ...lead.key }),
    desk.take(good.agentId, ended(good.key, { status: "succeeded", conflicts: ["a/b"] })),
    desk.take(stale.agentId, ended(older, { status: "succeeded" })),
    desk.take(good.agentId, ended(foreign.key, { status: "succeeded" })),
    desk.take(retried.agentId, ended(retried.key, { status: "failed", code: "unavailable" })),
    desk.take(whole.agentId, { type: "accepted", ...whole.key }),
    desk.take(whole.agentId, ended(whole.key, { status: "succeeded" })),
  ]);

  assert.deepEqual(
    transactions.filter((actor) => actor === "agents"),
    ["agents", "agents"],
  );
  assert.deepEqual(
    results.map(({ ended: over }) => over?.jobId ?? null),
    [null, good.key.jobId, null, null, retried.key.jobId, null, whole.key.jobId],
  );
  assert.deepEqual(await Promise.all([lead, good, stale, foreign, retried, whole].map(stateOf)), [
    "running",
    "succeeded",
    "offered",
    "offered",
    "queued",
    "succeeded",
  ]);
  assert.deepEqual(await actorsOf(lead.key), [`job.running agent:${lead.agentId}`]);
  assert.deepEqual(await actorsOf(good.key), [
    `job.succeeded agent:${good.agentId}`,
    `store.conflict agent:${good.agentId}`,
  ]);
  assert.deepEqual(await actorsOf(stale.key), [`job.stale_report agent:${stale.agentId}`]);
  assert.deepEqual(await actorsOf(foreign.key), [`job.stale_report agent:${good.agentId}`]);
  assert.deepEqual(await actorsOf(retried.key), [`job.queued agent:${retried.agentId}`]);
  assert.deepEqual(await actorsOf(whole.key), [
    `job.running agent:${whole.agentId}`,
    `job.succeeded agent:${whole.agentId}`,
  ]);
});

test("a job whose end cannot be settled fails alone: the others of its batch end", async () => {
  const [lead, good, bad, other] = await offered(4);
  await server.database.query("update jobs set manifest = 'm' where id = $1", [bad.key.jobId]);
  const desk = createReportDesk(server.context);

  const results = await Promise.allSettled([
    desk.take(lead.agentId, { type: "accepted", ...lead.key }),
    desk.take(good.agentId, ended(good.key, { status: "succeeded" })),
    desk.take(bad.agentId, ended(bad.key, { status: "succeeded" })),
    desk.take(other.agentId, { type: "accepted", ...other.key }),
  ]);

  assert.deepEqual(
    results.map(({ status }) => status),
    ["fulfilled", "fulfilled", "rejected", "fulfilled"],
  );
  assert.deepEqual(await Promise.all([lead, good, bad, other].map(stateOf)), [
    "running",
    "succeeded",
    "offered",
    "running",
  ]);
  assert.deepEqual(await actorsOf(good.key), [`job.succeeded agent:${good.agentId}`]);
  assert.deepEqual(await numbersOf(good.key, 0), [1, 2]);
});

test("a row that someone holds keeps only its own job's report waiting", async (t) => {
  const [lead, held, free] = await offered(3);
  const desk = createReportDesk(server.context);
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const { promise: locked, resolve: lock } = Promise.withResolvers<void>();
  const holding = server.database.transaction("test", async (sql) => {
    await sql.query("select 1 from jobs where id = $1 for update", [held.key.jobId]);
    lock();
    await released;
  });
  t.after(() => release());
  await locked;

  const first = desk.take(lead.agentId, { type: "accepted", ...lead.key });
  const waiting = desk.take(held.agentId, ended(held.key, { status: "succeeded" }));
  await desk.take(free.agentId, ended(free.key, { status: "succeeded" }));

  assert.equal(await stateOf(free), "succeeded");
  assert.equal(await stateOf(held), "offered");
  release();
  await Promise.all([holding, first, waiting]);
  assert.equal(await stateOf(held), "succeeded");
});

test("the lines of many jobs share a page, and each job's are read back, after any number and across gaps", async () => {
  const jobs = await offered(5);
  const [lead, ...others] = jobs;
  const desk = createReportDesk(server.context);
  const gap: JobEvent = { seq: 2, last: 9, at, type: "gap", reason: "The spool was full." };
  const told = (key: JobKey): Report => ({
    type: "events",
    ...key,
    events: [line(1, key), gap, line(10, key)],
  });
  await Promise.all(jobs.map(({ agentId, key }) => desk.take(agentId, told(key))));
  const again = await Promise.all(
    jobs.map(({ agentId, key }) =>
      desk.take(agentId, { type: "events", ...key, events: [line(10, key), line(11, key)] }),
    ),
  );

  assert.deepEqual(
    again.map(({ ack }) => ack?.acknowledged),
    [11, 11, 11, 11, 11],
  );
  const pages = await server.database.query<{ count: number }>(
    `select count(*)::int as count from log_chunks where job_id = any($1) and first_seq = 1 group by blob order by 1`,
    [jobs.map(({ key }) => key.jobId)],
  );
  assert.deepEqual(pages, [{ count: 1 }, { count: others.length }]);
  for (const { key } of jobs) {
    const { events } = await readEvents(server.context, key.jobId, { after: 0, limit: 100 });
    assert.deepEqual(events, [line(1, key), gap, line(10, key), line(11, key)]);
    assert.deepEqual(await numbersOf(key, 5), [2, 10, 11]);
    assert.deepEqual(await numbersOf(key, 9), [10, 11]);
    assert.deepEqual(await numbersOf(key, 10), [11]);
  }
  assert.equal(await stateOf(lead), "offered");
});

test("a hole and a large chunk go their own way: the one is refused, the other a blob of its own", async () => {
  const [lead, holed, large] = await offered(3);
  const desk = createReportDesk(server.context);
  const long: JobEvent = { seq: 1, at, type: "log", stream: "stdout", line: "x".repeat(70_000) };

  const results = await Promise.allSettled([
    desk.take(lead.agentId, { type: "accepted", ...lead.key }),
    desk.take(holed.agentId, { type: "events", ...holed.key, events: [line(3, holed.key)] }),
    desk.take(large.agentId, { type: "events", ...large.key, events: [long] }),
  ]);

  assert.deepEqual(
    results.map(({ status }) => status),
    ["fulfilled", "rejected", "fulfilled"],
  );
  assert.deepEqual(await numbersOf(holed.key, 0), []);
  assert.deepEqual(await numbersOf(large.key, 0), [1]);
  const [row] = await server.database.query("select blob from log_chunks where job_id = $1", [
    large.key.jobId,
  ]);
  assert.deepEqual(row, { blob: null });
});

interface Offered {
  readonly agentId: AgentId;
  readonly key: JobKey;
}

/** Jobs on offer, each of an install and an agent of its own. */
async function offered<Count extends number>(count: Count): Promise<OfferedOf<Count>> {
  const made: Offered[] = [];
  while (made.length < count) {
    const install = await addInstall(server.database, appId);
    const agentId = await addAgent(server.database, install);
    const job = await planOf(install);
    await queueJobs(server.database, [job]);
    const [offer] = await offerJobs(server.database, ask(agentId), install, 1);
    assert(offer);
    made.push({ agentId, key: { jobId: offer.id, epoch: { generation: 1, n: offer.n } } });
  }
  return made as unknown as OfferedOf<Count>;
}

type OfferedOf<Count extends number, Made extends Offered[] = []> = Made["length"] extends Count
  ? Made
  : OfferedOf<Count, [...Made, Offered]>;

async function planOf(install: InstallId): Promise<NewJob> {
  const job = await createJob(
    server.context,
    {
      operation: "plan",
      app: { id: appId, name: "app" },
      install: { id: install, name: install },
      plugin: "noop",
      component: { name: "c", type: "noop", config: {} },
      sandbox: null,
      source: null,
      artifact: null,
      inputs: {},
      dependencies: {},
      approval: null,
      fingerprint: null,
    },
    { deploy: 1, generation: 1 },
  );
  const retry = { attempts: 3, backoffSeconds: 60, backoffSecondsMax: 60 };
  return { ...job, startSeconds: null, retry: { ...retry, on: ["unavailable"] } };
}

/** A context that tells who acted in its transactions. */
function counting(): { context: ServerContext; transactions: string[] } {
  const transactions: string[] = [];
  const { database } = server.context;
  const watched = {
    ...database,
    transaction: ((actor, work) => {
      transactions.push(actor);
      return database.transaction(actor, work);
    }) as typeof database.transaction,
  };
  return { context: { ...server.context, database: watched }, transactions };
}

function line(seq: number, { jobId }: JobKey): JobEvent {
  return { seq, at, type: "log", stream: "stdout", line: `line ${seq} of ${jobId}, ünïcode` };
}

function ended(key: JobKey, outcome: Outcome): Report {
  const last = { seq: 2, at, type: "outcome", outcome } as JobEvent;
  return { type: "events", ...key, events: [line(1, key), last] };
}

async function stateOf({ key }: Offered): Promise<string | undefined> {
  const [row] = await server.database.query<{ state: string }>(
    "select state from jobs where id = $1",
    [key.jobId],
  );
  return row?.state;
}

/** What was recorded of a job since it was offered, and by whom. */
async function actorsOf({ jobId }: JobKey): Promise<string[]> {
  const rows = await server.database.query<{ told: string }>(
    `select kind || ' ' || actor as told from events
     where job_id = $1 and (kind <> 'job.queued' or data ? 'from') and kind <> 'job.offered' order by id`,
    [jobId],
  );
  return rows.map((row) => row.told);
}

async function numbersOf(key: JobKey, after: number): Promise<number[]> {
  const page = await readEvents(server.context, key.jobId, { after, limit: 100 });
  return page.events.map(({ seq }) => seq);
}
