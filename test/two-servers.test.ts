/**
 * Two servers on one PostgreSQL and one blob store, agents on both: each with a gateway, an API and
 * background work of its own. Polls and heartbeats are set to an hour, so that what arrives was told by
 * a notice.
 */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import pg from "pg";
import { AppConfigSchema } from "../src/protocol/api.ts";
import type { JobKey } from "../src/protocol/job-key.ts";
import { syncApp } from "../src/server/apps.ts";
import { type Background, startBackground } from "../src/server/background.ts";
import type { ServerContext } from "../src/server/context.ts";
import { openDatabase } from "../src/server/database.ts";
import {
  type AgentKey,
  connectAgent,
  enrolDouble,
  logEvent,
  outcomeEvent,
  until,
} from "../src/server/gateway/agent-double.ts";
import { attachGateway, createGateway, type Gateway } from "../src/server/gateway/gateway.ts";
import { createHttp } from "../src/server/http/http.ts";
import { cancelJob } from "../src/server/jobs.ts";
import { beatServer, sweepServers } from "../src/server/servers.ts";
import { createToken } from "../src/server/tokens.ts";
import { createWake } from "../src/server/wake.ts";
import { startWakeRelay, type WakeRelay, wakeChannel } from "../src/server/wake-relay.ts";
import { createServerContext, noopApp, type TestServer } from "./server-context.ts";

const slowPollMs = 3_600_000;

interface Running {
  readonly context: ServerContext;
  readonly url: string;
  readonly relay: WakeRelay;
  readonly gateway: Gateway;
  readonly background: Background;
  close(): Promise<void>;
}

let first: TestServer;
let a: Running;
let b: Running;
let token: string;
before(async () => {
  first = await createServerContext();
  [a, b] = [await startServer("server-a"), await startServer("server-b")];
  await Promise.all([a.relay.ready, b.relay.ready]);
  const { secret } = await createToken(a.context, "server", { name: "t", kind: "api", days: 1 });
  token = secret;
});
after(async () => {
  await a.close();
  await b.close();
  await first.close();
});

test("agents of both servers get jobs that were queued through either, by a notice and not by a poll", async () => {
  const [onA, onB] = [await connect(a), await connect(b)];
  await queueBuilds(a, 2);
  const jobs = [await onA.nextJob(), await onB.nextJob()];
  await queueBuilds(b, 2);

  await onA.finish(jobs[0] as JobKey);
  await onB.finish(jobs[1] as JobKey);
  const more = [await onA.nextJob(), await onB.nextJob()];
  await onA.finish(more[0] as JobKey);
  await onB.finish(more[1] as JobKey);

  assert.equal(await finishedAmong([...jobs, ...more]), 4);
  onA.close();
  onB.close();
});

test("a job that is queued through one server reaches the agent on the other within a tick or two", async () => {
  const onB = await connect(b);

  const startedAt = performance.now();
  await queueBuilds(a, 1);
  const job = await onB.nextJob();

  // Far below any poll; a generous bound, since the machine is busy with other tests.
  assert(performance.now() - startedAt < 10_000);
  await onB.finish(job);
  onB.close();
});

test("a cancel through one server reaches the agent on the other", async () => {
  const onB = await connect(b);
  await queueBuilds(b, 1);
  const job = await onB.nextJob();
  onB.send({ type: "accepted", ...job });

  await cancelJob(a.context, "token:test", job.jobId);

  assert.equal((await onB.nextEffect("cancel")).jobId, job.jobId);
  onB.send({ type: "events", ...job, events: [outcomeEvent(1, "cancelled")] });
  await onB.nextEffect("ack");
  onB.close();
});

test("lines and progress of a job on one server are seen live through the other", async () => {
  const onB = await connect(b);
  await queueBuilds(b, 1);
  const job = await onB.nextJob();
  onB.send({ type: "accepted", ...job });
  const lines = readLines(await ask(a, `/api/jobs/${job.jobId}/logs?follow=1`));
  let notices = 0;
  const stop = a.context.wake.listen(`log:${job.jobId}`, () => notices++);

  onB.send({ type: "events", ...job, events: [logEvent(1)] });
  assert.equal((await lines.next()).value, JSON.stringify(logEvent(1)));
  const progress = { label: "copy", done: 1, total: 4 };
  const at = new Date(0).toISOString();
  onB.send({
    type: "events",
    ...job,
    events: [{ seq: 2, at, type: "progress", unit: "steps", ...progress }],
  });
  await until(() => a.context.progress.has(job.jobId), "the progress is known on the other server");
  assert.deepEqual(a.context.progress.get(job.jobId), progress);
  onB.send({ type: "events", ...job, events: [outcomeEvent(3)] });

  const rest: string[] = [];
  for await (const line of lines) rest.push(line);
  assert.deepEqual(
    rest.map((line) => JSON.parse(line).seq),
    [2, 3],
  );
  await until(() => !a.context.progress.has(job.jobId), "and forgotten with the job");
  await until(() => notices > 0, "the reader's server was told, and did not only poll");
  stop();
  onB.close();
});

test("of two connections with one key on two servers the newest wins, and the older gets no more offers", async () => {
  const key = await enrolDouble(a.context);
  const older = await connect(a, key);

  const newer = await connect(b, key);

  assert.match((await older.nextEffect("superseded")).reason, /newer/);
  await until(() => older.closed() !== null, "the older one is closed");
  await queueBuilds(a, 1);
  await newer.finish(await newer.nextJob());
  assert.equal(older.frames.length, 0);
  newer.close();
});

test("an older connection that was not told yet is offered nothing: its row names the newer one", async () => {
  const key = await enrolDouble(a.context);
  const older = await connect(a, key);
  await first.database.query("update agents set connection = $2 where id = $1", [
    key.id,
    randomUUID(),
  ]);

  await queueBuilds(a, 1);

  assert.match((await older.nextEffect("superseded")).reason, /newer/);
  const [job] = await first.database.query<{ state: string }>(
    "select state from jobs order by created_at desc limit 1",
  );
  assert.equal(job?.state, "queued");
  const last = await connect(b);
  await last.finish(await last.nextJob());
  last.close();
});

test("any number of jobs that are queued in one tick make a handful of notices", async () => {
  const listener = new pg.Client({ connectionString: first.url });
  await listener.connect();
  const notes: string[] = [];
  listener.on("notification", ({ payload = "" }) => notes.push(payload));
  await listener.query(`listen ${wakeChannel}`);

  const jobs = 300;
  for (let count = 0; count < jobs; count++) a.context.wake.notify(`jobs:ins_${count}`);
  for (let count = 0; count < jobs; count++) a.context.wake.notify("jobs:build");
  a.context.wake.notify("jobs:last");
  await until(() => notes.some((note) => note.includes("jobs:last")), "all was told");

  assert(notes.length <= 2, `${notes.length} notices for ${2 * jobs} jobs`);
  const told = notes.flatMap((note) => JSON.parse(note).topics);
  assert.equal(told.filter((topic: string) => topic.startsWith("jobs:ins_")).length, jobs);
  assert.equal(told.filter((topic: string) => topic === "jobs:build").length, 1);
  await listener.end();
});

test("a server that has news all the time tells it once per tick", async () => {
  const listener = new pg.Client({ connectionString: first.url });
  await listener.connect();
  const notes: string[] = [];
  listener.on("notification", ({ payload = "" }) => notes.push(payload));
  await listener.query(`listen ${wakeChannel}`);

  const startedAt = performance.now();
  let told = 0;
  await until(() => {
    a.context.wake.notify(`jobs:busy_${told++}`);
    return performance.now() - startedAt > 500;
  }, "half a second of news");
  a.context.wake.notify("jobs:over");
  await until(() => notes.some((note) => note.includes("jobs:over")), "all was told");
  const ticks = (performance.now() - startedAt) / 50;

  assert(told > 20 && notes.length <= ticks + 2, `${notes.length} notices in ${ticks} ticks`);
  await listener.end();
});

test("a server whose connection for notices was cut listens again, and looks at everything once", async () => {
  const heard: string[] = [];
  const stop = b.context.wake.listen("jobs:cut", () => heard.push("jobs:cut"));

  const cut = `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'landfall wake'`;
  await first.database.query(cut);
  await until(() => heard.length > 0, "everything is looked at, since notices may have been lost");
  const before = heard.length;
  await until(() => {
    a.context.wake.notify("jobs:cut");
    return heard.length > before;
  }, "notices come again");

  stop();
});

test("the connections of a server that died are cleared by another, and its own come back as new ones", async () => {
  const dead = await enrolDouble(a.context);
  const connection = randomUUID();
  await first.database.query(
    "update agents set connection = $2, connected_at = now(), server = 'server-dead' where id = $1",
    [dead.id, connection],
  );
  await beatServer(first.database, "server-dead");
  const living = await connect(b);

  assert.equal(await sweepServers(a.context), 0);
  await first.database.query(
    "update servers set seen_at = now() - interval '31 seconds' where id = 'server-dead'",
  );
  assert.equal(await sweepServers(a.context), 1);

  const rows = await first.database.query<{ id: string; connection: string | null }>(
    "select id, connection from agents where id = any($1)",
    [[dead.id, living.hello.agentId]],
  );
  const connected = rows.filter((row) => row.connection !== null).map((row) => row.id);
  assert.deepEqual(connected, [living.hello.agentId]);
  living.close();
});

test("an agent whose server was taken for dead is asked to connect again, not told that it was replaced", async () => {
  const agent = await connect(b);
  await first.database.query(
    "update agents set connection = null, connected_at = null, server = null where id = $1",
    [agent.hello.agentId],
  );

  a.context.wake.notify(`agent:${agent.hello.agentId}`);

  assert.equal((await agent.next("goodbye")).code, "retry");
});

async function startServer(serverId: string): Promise<Running> {
  const database = openDatabase({ connectionString: first.url }, () => {});
  const context: ServerContext = {
    ...first.context,
    database,
    wake: createWake(),
    progress: new Map(),
    serverId,
  };
  const { wake, progress, log } = context;
  const connection = { connectionString: first.url };
  const relay = startWakeRelay({ connection, wake, progress, log });
  const http = await createHttp(context, {});
  const gateway = createGateway(context, { seenMs: slowPollMs });
  attachGateway(http.server, gateway);
  const url = await http.listen({ host: "127.0.0.1", port: 0 });
  await beatServer(database, serverId);
  const background = startBackground(context, { pollMs: slowPollMs });
  return {
    context,
    url,
    relay,
    gateway,
    background,
    async close() {
      await background.stop();
      await gateway.close();
      await http.close();
      await relay.stop();
      await database.close();
    },
  };
}

async function connect(server: Running, key?: AgentKey) {
  const agent = await connectAgent(
    server.url,
    server.context,
    key ?? (await enrolDouble(server.context)),
  );
  await agent.nextEffect("welcome");
  return agent;
}

async function queueBuilds(server: Running, count: number): Promise<void> {
  const graph = Object.fromEntries(Array.from({ length: count }, (_, index) => [`p${index}`, []]));
  const name = `app-${randomUUID().slice(0, 8)}`;
  const config = AppConfigSchema.parse(noopApp(name, graph));
  await syncApp(server.context, "token:test", { config, sources: {} });
}

async function finishedAmong(jobs: readonly JobKey[]): Promise<number> {
  const rows = await first.database.query(
    "select 1 from jobs where id = any($1) and state = 'succeeded'",
    [jobs.map(({ jobId }) => jobId)],
  );
  return rows.length;
}

function ask(server: Running, path: string): Promise<Response> {
  return fetch(server.url + path, { headers: { authorization: `Bearer ${token}` } });
}

async function* readLines(answer: Response): AsyncGenerator<string> {
  assert(answer.ok && answer.body);
  let rest = "";
  for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line !== "") yield line;
  }
}
