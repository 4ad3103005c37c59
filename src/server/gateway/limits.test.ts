/** What a gateway bears: silent connections, storms, floods; real sockets, real PostgreSQL, limits made small. */
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { WebSocket } from "ws";
import { createServerContext, type TestServer } from "../../../test/server-context.ts";
import { createId } from "../../model/ids.ts";
import { gatewayPath } from "../../protocol/enrolment.ts";
import { encodePublicKey } from "../../protocol/signed-document.ts";
import type { Database } from "../database.ts";
import {
  type AgentKey,
  connectAgent,
  enrolDouble,
  logEvent,
  openSocket,
  outcomeEvent,
  until,
} from "./agent-double.ts";
import { queueBuilds, startGateway } from "./gateway-bench.ts";
import { gatewayLimits } from "./limits.ts";

let server: TestServer;
before(async () => {
  server = await createServerContext();
});
after(() => server.close());

test("a connection that answers nothing is ended within seconds, one that answers is kept", async (t) => {
  const limits = { pingAfterMs: 100, silenceMs: 400, sweepMs: 20 };
  const { url, gateway } = await startGateway(t, server.context, limits);
  const idle = await connectAgent(url, server.context, await enrolDouble(server.context));
  await idle.nextEffect("welcome");
  const dead = await connectAgent(url, server.context, await enrolDouble(server.context));
  await dead.nextEffect("welcome");
  let pings = 0;
  idle.socket.on("ping", () => pings++);

  // As good as a cable that was cut: nothing is read, nothing is answered.
  dead.socket.pause();
  await until(() => gateway.connectedCount() === 1, "the dead one is noticed");
  const asked = pings;
  await until(() => pings > asked + 2, "the idle one is asked again");

  assert.equal(idle.closed(), null);
  assert(gatewayLimits.silenceMs <= 20_000 && gatewayLimits.pingAfterMs <= 10_000);
});

test("a server that stood still for a while takes nobody for dead", async (t) => {
  const limits = { pingAfterMs: 100, silenceMs: 400, sweepMs: 20 };
  const { url, gateway } = await startGateway(t, server.context, limits);
  const agent = await connectAgent(url, server.context, await enrolDouble(server.context));
  await agent.nextEffect("welcome");
  let pings = 0;
  agent.socket.on("ping", () => pings++);

  // As after SIGSTOP: the whole process, its timers first when it goes on.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * limits.silenceMs);
  const before = pings;
  await until(() => pings > before + 2, "it is asked, and answers, as before");

  assert.equal(agent.closed(), null);
  assert.equal(gateway.connectedCount(), 1);
});

test("whoever says no hello is told so; waiting in line does not count", async (t) => {
  const limits = { helloMs: 300, sweepMs: 20, handshakesAtOnce: 1 };
  const { url } = await startGateway(t, server.context, limits);
  const [first, second] = [
    await enrolDouble(server.context),
    await enrolDouble(server.context),
  ] as const;
  const { promise: locked, resolve: unlock } = Promise.withResolvers<void>();
  const { promise: holding, resolve: hold } = Promise.withResolvers<void>();
  const lock = server.database.transaction("server", async (sql) => {
    await sql.query("select 1 from agents where id = $1 for update", [first.id]);
    hold();
    await locked;
  });
  t.after(() => unlock());
  await holding;

  const head = await connectAgent(url, server.context, first);
  const waiting = await connectAgent(url, server.context, second);
  const mute = await openSocket(url);
  assert.match((await mute.next("goodbye")).reason, /`hello` within/);
  assert.equal(waiting.frames.length, 0);
  unlock();
  await lock;

  await head.nextEffect("welcome");
  await waiting.nextEffect("welcome");
});

test("when the line is full, the next one is told when to come again", async (t) => {
  const { url } = await startGateway(t, server.context, { handshakesMax: 2 });
  const opened = [await openSocket(url), await openSocket(url)];

  const late = new WebSocket(new URL(gatewayPath, url.replace("http", "ws")));
  late.on("error", () => {});
  const signal = AbortSignal.timeout(20_000);
  const [, answer] = await once(late, "unexpected-response", { signal });

  assert.equal(answer.statusCode, 503);
  assert.equal(answer.headers["retry-after"], String(gatewayLimits.retryAfterSeconds));
  late.terminate();
  for (const socket of opened) socket.close();
  await until(async () => {
    const again = await openSocket(url).catch(() => null);
    return again !== null;
  }, "there is room again");
});

test("a storm of agents that come back fails none of them, and few ask the database at once", async (t) => {
  const agents = await insertAgents(150);
  let [running, most] = [0, 0];
  const database: Database = {
    ...server.database,
    async query(text, values) {
      running += 1;
      most = Math.max(most, running);
      return server.database.query<never>(text, values).finally(() => running--);
    },
  };
  const context = { ...server.context, database };
  const { url, gateway } = await startGateway(t, context, { handshakesAtOnce: 3 });

  const connections = await Promise.all(agents.map((agent) => connectAgent(url, context, agent)));
  await Promise.all(connections.map((connection) => connection.nextEffect("welcome")));

  assert.equal(gateway.connectedCount(), agents.length);
  // Three handshakes, one look, two writers of heartbeats.
  assert(most <= 6, `${most} statements at once`);
  const before = performance.now();
  for (const connection of connections) connection.socket.terminate();
  await until(async () => (await connectedAmong(agents)) === 0, "all are gone, in few statements");
  assert(performance.now() - before < 20_000);
});

test("heartbeats of idle agents cost no statement each, and all of them count", async (t) => {
  const agents = await insertAgents(40);
  const statements: string[] = [];
  const database: Database = {
    ...server.database,
    query(text, values) {
      statements.push(text);
      return server.database.query(text, values);
    },
  };
  const { url } = await startGateway(t, { ...server.context, database }, { seenMs: 200 });
  const connections = await Promise.all(
    agents.map((agent) => connectAgent(url, server.context, agent)),
  );
  await Promise.all(connections.map((connection) => connection.nextEffect("welcome")));
  async function beatAll(rounds: number): Promise<void> {
    await server.database.query("update agents set seen_at = 'epoch'");
    for (let round = 0; round < rounds; round++) {
      for (const { send } of connections) send({ type: "renew", jobs: [], freeSlots: 1 });
      for (const { next } of connections) await next("renewed");
    }
    await until(async () => (await seenAmong(agents)) === agents.length, "all were seen");
  }
  await beatAll(1); // whatever followed the welcome is over
  statements.length = 0;

  await beatAll(5);

  assert(statements.length < agents.length, `${statements.length} statements for 200 heartbeats`);
  assert.deepEqual(
    statements.filter((text) => !text.includes("set seen_at")),
    [],
  );
});

test("leases of many agents are renewed together, each only by the agent that holds the job", async (t) => {
  const limits = { leasesMs: 50, seenMs: 50 };
  const { url } = await startGateway(t, server.context, limits);
  const keys = [await enrolDouble(server.context), await enrolDouble(server.context)];
  const agents = await Promise.all(keys.map((key) => connectAgent(url, server.context, key)));
  await Promise.all(agents.map((agent) => agent.nextEffect("welcome")));
  await queueBuilds(server, "leases", 2);
  const [one, two] = agents;
  assert(one && two);
  const jobs = [await one.nextJob(), await two.nextJob()] as const;
  one.send({ type: "accepted", ...jobs[0] });
  two.send({ type: "accepted", ...jobs[1] });
  await until(async () => (await runningAmong(jobs)) === 2, "both run");
  const age = "update jobs set lease_expires_at = 'epoch' where id = any($1)";
  await server.database.query(age, [jobs.map(({ jobId }) => jobId)]);

  two.send({ type: "renew", jobs: [jobs[0]], freeSlots: 0 });
  await two.next("renewed");
  two.send({ type: "renew", jobs: [jobs[1]], freeSlots: 0 });
  await until(async () => (await leasedAmong([jobs[1]])) === 1, "the second one's lease goes on");
  assert.equal(await leasedAmong([jobs[0]]), 0);
  one.send({ type: "renew", jobs: [jobs[0]], freeSlots: 0 });

  await until(async () => (await leasedAmong(jobs)) === 2, "both leases go on");
});

test("an unreachable job runs again as soon as its agent renews it, and the record says who did", async (t) => {
  const { url } = await startGateway(t, server.context, { leasesMs: 50 });
  const key = await enrolDouble(server.context);
  const agent = await connectAgent(url, server.context, key);
  await agent.nextEffect("welcome");
  await queueBuilds(server, "unreachable");
  const job = await agent.nextJob();
  agent.send({ type: "accepted", ...job });
  await until(async () => (await runningAmong([job])) === 1, "it runs");
  await server.database.query("update jobs set state = 'unreachable' where id = $1", [job.jobId]);

  agent.send({ type: "renew", jobs: [job], freeSlots: 0 });

  await until(async () => (await runningAmong([job])) === 1, "it runs again");
  const [event] = await server.database.query<{ actor: string }>(
    `select actor from events where job_id = $1 and kind = 'job.running' and data ->> 'from' = 'unreachable'`,
    [job.jobId],
  );
  assert.equal(event?.actor, `agent:${key.id}`);
});

test("a flood from one agent is throttled: its acks are withheld, while its control frames are answered", async (t) => {
  const frameBytes = 32 * 1024;
  const limits = { eventBytesPerSecond: 64 * 1024, eventBytesBurst: 1 };
  const { url } = await startGateway(t, server.context, limits);
  const agent = await connectAgent(url, server.context, await enrolDouble(server.context));
  await agent.nextEffect("welcome");
  await queueBuilds(server, "flood");
  const job = await agent.nextJob();
  const startedAt = performance.now();
  agent.frames.length = 0;

  for (const seq of [1, 2, 3]) {
    agent.send({ type: "events", ...job, events: [logEvent(seq, frameBytes)] });
  }
  agent.send({ type: "renew", jobs: [job], freeSlots: 0 });
  await until(() => agent.frames.length >= 4, "three acks and an answer");

  // The heartbeat was sent last, and answered before the second ack.
  assert(agent.frames.findIndex(({ type }) => type === "renewed") <= 1);
  // Two frames had to wait until the ones before them were paid for.
  const leastMs = (2 * 1000 * frameBytes) / limits.eventBytesPerSecond;
  assert(performance.now() - startedAt >= leastMs - 5);
});

test("a flood from one agent does not hold up another's jobs", async (t) => {
  const limits = { eventBytesPerSecond: 64 * 1024, eventBytesBurst: 1 };
  const { url } = await startGateway(t, server.context, limits);
  const flooding = await connectAgent(url, server.context, await enrolDouble(server.context));
  await flooding.nextEffect("welcome");
  await queueBuilds(server, "flooding");
  const flood = await flooding.nextJob();
  const lines = Array.from({ length: 20 }, (_, index) => logEvent(index + 1, 40_000));
  for (const line of lines) flooding.send({ type: "events", ...flood, events: [line] });
  await flooding.nextEffect("ack");

  const other = await connectAgent(url, server.context, await enrolDouble(server.context));
  await other.nextEffect("welcome");
  await queueBuilds(server, "quick");
  await other.finish(await other.nextJob());

  // Twenty frames take twelve seconds at this rate: the other's whole job lay between two of them.
  assert(flooding.frames.filter(({ type }) => type === "signed").length < lines.length - 1);
  assert.equal(flooding.closed(), null);
});

test("an agent is told its credit, and one that overdraws it is closed with the reason", async (t) => {
  const limits = { creditBytes: 1000, eventBytesPerSecond: 1000, eventBytesBurst: 1 };
  const { url } = await startGateway(t, server.context, limits);
  const agent = await connectAgent(url, server.context, await enrolDouble(server.context));
  const welcome = await agent.nextEffect("welcome");
  await queueBuilds(server, "credit");
  const job = await agent.nextJob();

  for (const seq of [1, 2, 3]) {
    agent.send({ type: "events", ...job, events: [logEvent(seq, 900_000)] });
  }

  assert.equal(welcome.creditBytes, 1000);
  assert.match((await agent.next("goodbye")).reason, /at most 1000 bytes of events without an ack/);
  assert.equal(gatewayLimits.creditBytes, 1024 * 1024);
});

test("an agent of version 1, which knows no credits, is read no faster than it is handled", async (t) => {
  const limits = { creditBytes: 1000, eventBytesPerSecond: 20_000_000, eventBytesBurst: 1 };
  const { url } = await startGateway(t, server.context, limits);
  const key = await enrolDouble(server.context);
  const agent = await connectAgent(url, server.context, key, { protocol: 1 });
  await agent.nextEffect("welcome");
  await queueBuilds(server, "no-credit");
  const job = await agent.nextJob();

  for (const seq of [1, 2, 3, 4, 5]) {
    agent.send({ type: "events", ...job, events: [logEvent(seq, 900_000)] });
  }
  agent.send({ type: "events", ...job, events: [outcomeEvent(6)] });

  for (;;) if ((await agent.nextEffect("ack")).acknowledged === 6) break;
  assert.equal(await stateOf(job.jobId), "succeeded");
});

test("an outcome that waits in line counts, although the loss of the same job came right after it", async (t) => {
  const limits = { eventBytesPerSecond: 64 * 1024, eventBytesBurst: 1 };
  const { url } = await startGateway(t, server.context, limits);
  const agent = await connectAgent(url, server.context, await enrolDouble(server.context));
  await agent.nextEffect("welcome");
  await queueBuilds(server, "order");
  const job = await agent.nextJob();

  agent.send({ type: "events", ...job, events: [logEvent(1, 32 * 1024)] });
  agent.send({ type: "events", ...job, events: [outcomeEvent(2)] });
  agent.send({ type: "lost", ...job, reason: "no trace of its executor" });
  for (;;) if ((await agent.nextEffect("ack")).acknowledged === 0) break;

  assert.equal(await stateOf(job.jobId), "succeeded");
});

test("a draining agent is offered nothing, and gets its jobs when it drains no longer", async (t) => {
  const { url } = await startGateway(t, server.context, { seenMs: 50 });
  const key = await enrolDouble(server.context);
  const drain = "update agents set draining_at = now(), drain_reason = 'upgrade' where id = $1";
  await server.database.query(drain, [key.id]);
  const change = { slots: 3, freeSlots: 3, version: "1.2.3" };
  const agent = await connectAgent(url, server.context, key, change);
  await agent.nextEffect("welcome");
  await queueBuilds(server, "drain", 4);
  agent.send({ type: "renew", jobs: [], freeSlots: 3 });
  await agent.next("renewed");
  assert.equal(agent.frames.length, 0);

  await server.database.query(
    "update agents set draining_at = null, drain_reason = null where id = $1",
    [key.id],
  );
  server.context.wake.notify(`agent:${key.id}`);

  for (let count = 0; count < change.slots; count++) await agent.nextJob();
  // Told with the next heartbeats that are written.
  await until(async () => {
    const told = await server.database.query(
      "select 1 from agents where id = $1 and slots = 3 and protocol = 2 and version = '1.2.3'",
      [key.id],
    );
    return told.length === 1;
  }, "what the agent told of itself");
});

test("an agent that is revoked is told so at once", async (t) => {
  const { url } = await startGateway(t, server.context);
  const key = await enrolDouble(server.context);
  const agent = await connectAgent(url, server.context, key);
  await agent.nextEffect("welcome");

  await server.database.query("update agents set revoked_at = now() where id = $1", [key.id]);
  server.context.wake.notify(`agent:${key.id}`);

  assert.match((await agent.next("goodbye")).reason, /revoked/);
});

test("a revoked agent whose notice was lost is found out by its next heartbeat", async (t) => {
  const { url } = await startGateway(t, server.context, { seenMs: 50 });
  const key = await enrolDouble(server.context);
  const agent = await connectAgent(url, server.context, key);
  await agent.nextEffect("welcome");
  await server.database.query("update agents set revoked_at = now() where id = $1", [key.id]);

  agent.send({ type: "renew", jobs: [], freeSlots: 1 });

  assert.match((await agent.next("goodbye")).reason, /revoked/);
});

async function insertAgents(count: number): Promise<AgentKey[]> {
  const pairs = Array.from({ length: count }, () => generateKeyPairSync("ed25519"));
  const { now, random } = server.context;
  const agents = pairs.map((pair) => ({ ...pair, id: createId("agt", now(), random) }));
  await server.database.query(
    `insert into agents (id, role, public_key)
     select id, 'build', key from unnest($1::text[], $2::text[]) as given (id, key)`,
    [agents.map(({ id }) => id), agents.map(({ publicKey }) => encodePublicKey(publicKey))],
  );
  return agents;
}

async function count(text: string, ids: readonly string[]): Promise<number> {
  const [row] = await server.database.query<{ count: number }>(text, [ids]);
  return row?.count ?? 0;
}

function connectedAmong(agents: readonly AgentKey[]): Promise<number> {
  const text = "select count(*) from agents where id = any($1::text[]) and connection is not null";
  return count(
    text,
    agents.map(({ id }) => id),
  );
}

function seenAmong(agents: readonly AgentKey[]): Promise<number> {
  const text = "select count(*) from agents where id = any($1::text[]) and seen_at > 'epoch'";
  return count(
    text,
    agents.map(({ id }) => id),
  );
}

function runningAmong(jobs: readonly { jobId: string }[]): Promise<number> {
  const text = "select count(*) from jobs where id = any($1::text[]) and state = 'running'";
  return count(
    text,
    jobs.map(({ jobId }) => jobId),
  );
}

function leasedAmong(jobs: readonly { jobId: string }[]): Promise<number> {
  const text =
    "select count(*) from jobs where id = any($1::text[]) and lease_expires_at > clock_timestamp()";
  return count(
    text,
    jobs.map(({ jobId }) => jobId),
  );
}

async function stateOf(jobId: string): Promise<string | undefined> {
  const [row] = await server.database.query<{ state: string }>(
    "select state from jobs where id = $1",
    [jobId],
  );
  return row?.state;
}
