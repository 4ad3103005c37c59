/** What agents may send, and what becomes of those who send something else; real sockets, real PostgreSQL. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { createServerContext, type TestServer } from "../../../test/server-context.ts";
import { type AgentFrame, EffectFrame, frameBytesMax } from "../../protocol/frames.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import { type AgentDouble, connectAgent, enrolDouble, openSocket, until } from "./agent-double.ts";
import { queueBuilds, startGateway } from "./gateway-bench.ts";

let server: TestServer;
before(async () => {
  server = await createServerContext();
});
after(() => server.close());

const bad: readonly { what: string; send: (agent: AgentDouble) => void; reason: RegExp }[] = [
  { what: "not JSON", send: ({ socket }) => socket.send("{"), reason: /Expected a frame of JSON/ },
  {
    what: "of a wrong form",
    send: ({ socket }) => socket.send('{"type":"renew","jobs":"all","freeSlots":1}'),
    reason: /got one that is not: .*expected array.*jobs/s,
  },
  {
    what: "of an unknown type",
    send: ({ socket }) => socket.send('{"type":"x"}'),
    reason: /got one that is not/,
  },
  {
    what: "binary",
    send: ({ socket }) => socket.send(Buffer.from("{}"), { binary: true }),
    reason: /text frames/,
  },
  {
    what: "too large",
    send: ({ socket }) => socket.send("x".repeat(frameBytesMax + 1)),
    reason: /at most 1048576 bytes/,
  },
  { what: "a second hello", send: ({ send, hello }) => send(hello), reason: /got a second/ },
];

test("whatever is not a frame closes its connection with a reason that a person understands, and harms nobody else", async (t) => {
  const { url, gateway } = await startGateway(t, server.context);
  const good = await connectAgent(url, server.context, await enrolDouble(server.context));
  await good.nextEffect("welcome");

  for (const { what, send, reason } of bad) {
    const key = await enrolDouble(server.context);
    const agent = await connectAgent(url, server.context, key);
    await agent.nextEffect("welcome");
    send(agent);

    const goodbye = await agent.next("goodbye");
    assert.equal(goodbye.code, "refused", what);
    assert.match(goodbye.reason, reason, what);
    await until(() => agent.closed() !== null, `${what}: the socket is closed`);
    await until(async () => (await refusalsOf(key.id)).length === 1, `${what}: it is on record`);
  }

  good.send({ type: "renew", jobs: [], freeSlots: 1 });
  assert.equal((await good.next("renewed")).type, "renewed");
  assert.equal(gateway.connectedCount(), 1);
});

test("a frame before the hello is refused", async (t) => {
  const { url } = await startGateway(t, server.context);
  const stranger = await openSocket(url);

  stranger.send({ type: "renew", jobs: [], freeSlots: 1 });

  assert.match((await stranger.next("goodbye")).reason, /`hello` first, got `renew`/);
  await until(() => stranger.closed() !== null, "it is closed");
});

test("a flood of unknown frames is answered once, and nothing after the first is read", async (t) => {
  const { url } = await startGateway(t, server.context);
  const key = await enrolDouble(server.context);
  const agent = await connectAgent(url, server.context, key);
  await agent.nextEffect("welcome");

  for (let count = 0; count < 2000; count++) agent.sendText('{"type":"noise"}');

  await until(() => agent.closed() !== null, "it is closed");
  assert.equal(agent.frames.filter(({ type }) => type === "goodbye").length, 1);
  await until(async () => (await refusalsOf(key.id)).length > 0, "it is on record");
  assert.equal((await refusalsOf(key.id)).length, 1);
});

test("an agent that is refused again and again is on record, a few times a minute", async (t) => {
  const { url } = await startGateway(t, server.context);
  const key = await enrolDouble(server.context);

  for (let count = 0; count < 8; count++) {
    const agent = await connectAgent(url, server.context, key);
    await agent.nextEffect("welcome");
    agent.sendText("{");
    await agent.next("goodbye");
  }

  await until(async () => (await refusalsOf(key.id)).length >= 5, "it is on record");
  assert.equal((await refusalsOf(key.id)).length, 5);
});

test("a failure while a frame is handled closes that connection alone, and asks it to come again", async (t) => {
  const { url, gateway } = await startGateway(t, server.context);
  const good = await connectAgent(url, server.context, await enrolDouble(server.context), {
    freeSlots: 0,
  });
  await good.nextEffect("welcome");
  const agent = await connectAgent(url, server.context, await enrolDouble(server.context));
  await agent.nextEffect("welcome");
  await queueBuilds(server, "hole");
  const key = await agent.nextJob();

  // Number 2 without number 1: nothing of it may be stored.
  const line = { at: "", type: "log", stream: "stdout", line: "" } as const;
  agent.send({ type: "events", ...key, events: [{ ...line, seq: 2 }] });

  assert.equal((await agent.next("goodbye")).code, "retry");
  await until(() => gateway.connectedCount() === 1, "the other one is still there");
});

test("an agent of version 1 is served whole by recorded frames, and sees nothing of version 2", async (t) => {
  const { url } = await startGateway(t, server.context);
  const recorded = readFixture();
  const greeting = recorded.find((frame) => frame.type === "hello");
  assert(greeting?.type === "hello");
  const { protocol, freeSlots } = greeting;
  const key = await enrolDouble(server.context);
  const agent = await connectAgent(url, server.context, key, { protocol, freeSlots });

  assert.deepEqual(Object.keys(agent.hello).sort(), Object.keys(greeting).sort());
  const welcome = await agent.nextEffect("welcome");
  assert.deepEqual(Object.keys(welcome).sort(), fieldsOf("welcome"));
  await queueBuilds(server, "version-one");
  const job = await agent.nextJob();
  for (const type of ["accepted", "renew", "events"] as const) {
    const frame = recorded.find((each) => each.type === type);
    assert(frame);
    agent.sendText(JSON.stringify(withJob(frame, job)));
    if (type === "renew") await agent.next("renewed");
  }

  const ack = await agent.nextEffect("ack");
  assert.deepEqual(Object.keys(ack).sort(), fieldsOf("ack"));
  assert.equal(ack.acknowledged, 3);
  const [row] = await server.database.query<{ state: string }>(
    "select state from jobs where id = $1",
    [job.jobId],
  );
  assert.equal(row?.state, "succeeded");
  await until(async () => (await traitsOf(key.id))?.protocol === 1, "its version is known");
});

test("an agent that speaks version 1 is refused what only version 2 has", async (t) => {
  const { url } = await startGateway(t, server.context);
  const key = await enrolDouble(server.context);
  const job = { jobId: "job_000000000000000000000000", epoch: { generation: 1, n: 1 } };
  const gap = { seq: 1, at: "", type: "gap", last: 9, reason: "full" };

  for (const frame of [
    { type: "recalled", jobs: [], more: false },
    { type: "events", ...job, events: [gap] },
  ]) {
    const agent = await connectAgent(url, server.context, key, { protocol: 1 });
    await agent.nextEffect("welcome");
    agent.sendText(JSON.stringify(frame));
    assert.match((await agent.next("goodbye")).reason, /frames of protocol 1/);
  }
});

test("an agent of a version that nobody speaks is told which ones are spoken", async (t) => {
  const { url } = await startGateway(t, server.context);

  const agent = await connectAgent(url, server.context, await enrolDouble(server.context), {
    protocol: 3,
  });

  assert.match((await agent.next("goodbye")).reason, /Expected protocol version 1 or 2, got 3/);
});

async function refusalsOf(agentId: string): Promise<object[]> {
  return server.database.query(
    "select id from events where kind = 'agent.refused' and data ->> 'agent' = $1",
    [agentId],
  );
}

async function traitsOf(agentId: string) {
  const [row] = await server.database.query<{ protocol: number | null }>(
    "select protocol from agents where id = $1",
    [agentId],
  );
  return row;
}

function readFixture(): AgentFrame[] {
  const path = join(import.meta.dirname, "../../protocol/fixtures/version-1.json");
  return JSON.parse(readFileSync(path, "utf8")).AgentFrame;
}

/** The fields that an effect had when version 1 was recorded. */
function fieldsOf(type: EffectFrame["type"]): string[] {
  const path = join(import.meta.dirname, "../../protocol/fixtures/version-1.json");
  const frames: EffectFrame[] = JSON.parse(readFileSync(path, "utf8")).EffectFrame;
  const frame = frames.find((each) => each.type === type);
  return Object.keys(EffectFrame.parse(frame)).sort();
}

/** The recorded frame, told of this job. */
function withJob(frame: AgentFrame, job: JobKey): object {
  if (frame.type === "renew") return { ...frame, jobs: [job] };
  return "jobId" in frame ? { ...frame, ...job } : frame;
}
