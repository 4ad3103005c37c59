/** The gateway over a real WebSocket and a real PostgreSQL; the test plays the agent. */
import assert from "node:assert/strict";
import { generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { WebSocket } from "ws";
import { createServerContext, noopApp, type TestServer } from "../../../test/server-context.ts";
import type { AgentId } from "../../model/ids.ts";
import { AppConfigSchema } from "../../protocol/api.ts";
import { LeaseGrant, Manifest } from "../../protocol/documents.ts";
import { gatewayPath } from "../../protocol/enrolment.ts";
import {
  type AgentFrame,
  EffectFrame,
  helloText,
  type JournalEntry,
  ServerFrame,
} from "../../protocol/frames.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import {
  decodePublicKey,
  encodePublicKey,
  verifyDocument,
} from "../../protocol/signed-document.ts";
import { syncApp } from "../apps.ts";
import { createEnrolmentCode, enrolAgent } from "../enrolment.ts";
import { cancelJob } from "../jobs.ts";
import { attachGateway, createGateway, type Gateway } from "./gateway.ts";

let server: TestServer;
let http: Server;
let gateway: Gateway;
let apps = 0;

before(async () => {
  server = await createServerContext();
  gateway = createGateway(server.context);
  http = createServer();
  attachGateway(http, gateway);
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
});
after(async () => {
  await gateway.close();
  http.close();
  await server.close();
});

test("an agent proves its key, gets a signed offer, reports, and the job is done", async () => {
  const agent = await enrol();
  const connection = await connect(agent);
  const { key, manifest, grant } = await offerBuild(connection);

  assert.equal(grant.manifestDigest, manifest.digest);
  assert.equal(grant.agentId, agent.id);
  connection.send({ type: "accepted", ...key });
  connection.send({ type: "events", ...key, events: [logEvent(1), outcomeEvent(2)] });

  const ack = await connection.nextEffect("ack");
  assert.equal(ack.acknowledged, 2);
  assert.equal(await stateOf(key), "succeeded");
  connection.close();
});

test("an agent whose key does not match is refused, recorded, and changes nothing", async () => {
  const agent = await enrol();
  const stranger = generateKeyPairSync("ed25519").privateKey;

  const connection = await connect({ ...agent, privateKey: stranger });

  const goodbye = await connection.next("goodbye");
  assert.equal(goodbye.code, "refused");
  assert.match(goodbye.reason, /does not match/);
  const [event] = await server.database.query<{ kind: string }>(
    "select kind from events where kind = 'agent.refused' and data ->> 'agent' = $1",
    [agent.id],
  );
  assert(event);
  const [row] = await server.database.query<{ connection: string | null }>(
    "select connection from agents where id = $1",
    [agent.id],
  );
  assert.equal(row?.connection, null);
});

test("a recorded hello is worth nothing on the next connection", async () => {
  const agent = await enrol();
  const first = await connect(agent);
  await first.nextEffect("welcome");

  const replay = await open();
  await replay.next("challenge");
  replay.send(first.hello);

  assert.equal((await replay.next("goodbye")).code, "refused");
  first.close();
});

test("every effect is counted from one, bound to the connection, and signed by a key of the keyset", async () => {
  const agent = await enrol();
  const connection = await connect(agent);
  const welcome = await connection.nextEffect("welcome");
  await queueBuild();
  const offer = await connection.nextEffect("offer");

  assert.deepEqual([welcome.counter, offer.counter], [1, 2]);
  assert.equal(offer.agentNonce, connection.agentNonce);
  connection.close();
});

test("an agent that comes back goes on with the same epoch, and its lines are neither lost nor doubled", async () => {
  const agent = await enrol();
  const first = await connect(agent);
  const { key } = await offerBuild(first);
  first.send({ type: "accepted", ...key });
  first.send({ type: "events", ...key, events: [logEvent(1), logEvent(2)] });
  await first.nextEffect("ack");
  first.close();

  const second = await connect(agent, [{ ...key, state: "ended" }]);
  const welcome = await second.nextEffect("welcome");
  assert.deepEqual(
    welcome.keep.map(({ jobId, epoch }) => ({ jobId, epoch })),
    [key],
  );
  second.send({ type: "events", ...key, events: [logEvent(2), logEvent(3), outcomeEvent(4)] });

  assert.equal((await second.nextEffect("ack")).acknowledged, 4);
  const chunks = await server.database.query(
    "select first_seq, last_seq from log_chunks where job_id = $1 order by first_seq",
    [key.jobId],
  );
  assert.deepEqual(chunks, [
    { first_seq: 1, last_seq: 2 },
    { first_seq: 3, last_seq: 4 },
  ]);
  second.close();
});

test("an offer that never reached its agent costs the job no attempt, however often it happens", async () => {
  const agent = await enrol();
  const first = await connect(agent);
  const { key } = await offerBuild(first);
  first.close();

  const second = await connect(agent);
  await second.nextEffect("welcome");
  await server.database.query("update jobs set not_before = now() where id = $1", [key.jobId]);
  server.context.wake.notify("jobs:build");
  const offer = await second.nextEffect("offer");
  const { payload } = await verifyDocument("landfall-grant", LeaseGrant, offer.grant, findKey);

  assert.deepEqual([payload.jobId, payload.epoch.n], [key.jobId, key.epoch.n + 1]);
  const [job] = await server.database.query<{ losses: number }>(
    "select losses from jobs where id = $1",
    [key.jobId],
  );
  assert.equal(job?.losses, 0);
  await finishOver(second, { jobId: payload.jobId, epoch: payload.epoch });
});

test("a job that its agent has no trace of is offered again, in the next epoch", async () => {
  const agent = await enrol();
  const first = await connect(agent);
  const { key } = await offerBuild(first);
  first.send({ type: "accepted", ...key });
  await until(async () => (await stateOf(key)) === "running");
  first.close();

  const second = await connect(agent, []);
  await second.nextEffect("welcome");
  await server.database.query(
    "update jobs set not_before = now() where id = $1 and outcome is null",
    [key.jobId],
  );
  server.context.wake.notify("jobs:build");
  const offer = await second.nextEffect("offer");

  const { payload } = await verifyDocument("landfall-grant", LeaseGrant, offer.grant, findKey);
  assert.deepEqual(payload.epoch, { generation: 1, n: 2 });
  await finishOver(second, { jobId: key.jobId, epoch: payload.epoch });
});

test("an outcome that the server stored but could not take before it died is taken when the agent is back", async () => {
  const agent = await enrol();
  const first = await connect(agent);
  const { key } = await offerBuild(first);
  first.send({ type: "accepted", ...key });
  await until(async () => (await stateOf(key)) === "running");
  first.close();
  const { appendEvents } = await import("../log-chunks.ts");
  await appendEvents(server.context, key, [logEvent(1), outcomeEvent(2)]);

  const second = await connect(agent, [{ ...key, state: "ended" }]);
  const [kept] = (await second.nextEffect("welcome")).keep;
  assert.equal(kept?.acknowledged, 1);
  second.send({ type: "events", ...key, events: [outcomeEvent(2)] });
  await second.nextEffect("ack");

  assert.equal(await stateOf(key), "succeeded");
  second.close();
});

test("a report of an older epoch is refused and recorded, also from the agent that runs the newer one", async () => {
  const agent = await enrol();
  const connection = await connect(agent);
  const { key } = await offerBuild(connection);
  connection.send({ type: "accepted", ...key });
  connection.send({ type: "lost", ...key, reason: "killed" });
  await connection.nextEffect("ack");
  await server.database.query("update jobs set not_before = now() where id = $1", [key.jobId]);
  server.context.wake.notify("jobs:build");
  const offer = await connection.nextEffect("offer");
  const { payload } = await verifyDocument("landfall-grant", LeaseGrant, offer.grant, findKey);
  const newer = { jobId: key.jobId, epoch: payload.epoch };
  connection.send({ type: "accepted", ...newer });
  await until(async () => (await stateOf(newer)) === "running");

  connection.send({ type: "events", ...key, events: [outcomeEvent(1)] });
  await connection.nextEffect("ack");

  assert.equal(await stateOf(newer), "running");
  const [event] = await server.database.query(
    "select 1 from events where kind = 'job.stale_report' and job_id = $1",
    [key.jobId],
  );
  assert(event);
  await finishOver(connection, newer);
});

test("of two connections with one key the newest wins", async () => {
  const agent = await enrol();
  const older = await connect(agent);
  await older.nextEffect("welcome");

  const newer = await connect(agent);
  await newer.nextEffect("welcome");

  assert.match((await older.nextEffect("superseded")).reason, /newer/);
  newer.close();
});

test("an agent that says it has no slot is offered nothing until it says otherwise", async () => {
  const connection = await connect(await enrol());
  await connection.nextEffect("welcome");
  connection.send({ type: "renew", jobs: [], freeSlots: 0 });
  await connection.next("renewed");
  await queueBuild();
  connection.send({ type: "renew", jobs: [], freeSlots: 0 });
  await connection.next("renewed");
  const [job] = await server.database.query<{ state: string }>(
    "select state from jobs order by created_at desc limit 1",
  );
  assert.equal(job?.state, "queued");

  connection.send({ type: "renew", jobs: [], freeSlots: 1 });

  const offer = await connection.nextEffect("offer");
  const { payload } = await verifyDocument("landfall-grant", LeaseGrant, offer.grant, findKey);
  await finishOver(connection, { jobId: payload.jobId, epoch: payload.epoch });
});

test("a cancel reaches the agent as a signed frame", async () => {
  const agent = await enrol();
  const connection = await connect(agent);
  const { key } = await offerBuild(connection);
  connection.send({ type: "accepted", ...key });
  await until(async () => (await stateOf(key)) === "running");

  await cancelJob(server.context, "token:test", key.jobId);

  const cancel = await connection.nextEffect("cancel");
  assert.equal(cancel.jobId, key.jobId);
  await finishOver(connection, key, "cancelled");
});

test("a bad frame closes that connection with a reason, and harms nobody else", async () => {
  const good = await connect(await enrol());
  await good.nextEffect("welcome");
  const bad = await connect(await enrol());
  await bad.nextEffect("welcome");

  bad.sendText('{"type":"renew","jobs":"all"}');

  assert.equal((await bad.next("goodbye")).code, "refused");
  good.send({ type: "renew", jobs: [], freeSlots: 1 });
  assert.equal((await good.next("renewed")).type, "renewed");
  good.close();
});

test("every token that is signed is an event, and no token is in the database", async () => {
  const agent = await enrol();
  const connection = await connect(agent);
  const { key, offer } = await offerBuild(connection);
  const token = offer.credentials.vendorRegistry?.token ?? "";

  const [event] = await server.database.query<{ data: { access: unknown } }>(
    "select data from events where kind = 'token.signed' and job_id = $1",
    [key.jobId],
  );
  assert.deepEqual(event?.data.access, [
    { kind: "repository", name: `app${apps}/only`, actions: ["pull", "push"] },
  ]);
  const rows = await server.database.query<{ text: string }>(
    "select jobs::text as text from jobs union all select events::text from events",
  );
  assert(token.length > 20 && !rows.some((row) => row.text.includes(token)));
  await finishOver(connection, key);
});

interface TestAgent {
  id: AgentId;
  privateKey: KeyObject;
}

type Effect<Type extends EffectFrame["type"]> = Extract<EffectFrame, { type: Type }>;
type Frame<Type extends ServerFrame["type"]> = Extract<ServerFrame, { type: Type }>;

async function enrol(): Promise<TestAgent> {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const { code } = await createEnrolmentCode(server.context, "token:test", {
    role: "build",
    installName: null,
  });
  const { agentId } = await enrolAgent(server.context, code, encodePublicKey(publicKey));
  return { id: agentId, privateKey };
}

async function open() {
  const { port } = http.address() as AddressInfo;
  const socket = new WebSocket(`ws://127.0.0.1:${port}${gatewayPath}`);
  const frames: ServerFrame[] = [];
  socket.on("message", (data) => frames.push(ServerFrame.parse(JSON.parse(data.toString()))));
  await once(socket, "open");
  /** The next frame of this type; those before it are dropped. */
  async function next<Type extends ServerFrame["type"]>(type: Type): Promise<Frame<Type>> {
    await until(() => frames.some((frame) => frame.type === type));
    const index = frames.findIndex((frame) => frame.type === type);
    const [frame] = frames.splice(0, index + 1).slice(index);
    return frame as Frame<Type>;
  }
  return {
    next,
    sendText: (text: string) => socket.send(text),
    send: (frame: AgentFrame) => socket.send(JSON.stringify(frame)),
    close: () => socket.close(),
  };
}

async function connect(agent: TestAgent, journal: JournalEntry[] = []) {
  const connection = await open();
  const { nonce } = await connection.next("challenge");
  const agentNonce = randomBytes(16).toString("base64url");
  const { rootKeyId } = server.context.keys;
  const text = helloText({ rootKeyId, nonce, agentNonce, agentId: agent.id });
  const signature = sign(null, Buffer.from(text), agent.privateKey).toString("base64url");
  const hello = {
    type: "hello",
    protocol: 1,
    agentId: agent.id,
    agentNonce,
    signature,
    journal,
    freeSlots: 1,
  } as const;
  connection.send(hello);
  async function nextEffect<Type extends EffectFrame["type"]>(type: Type): Promise<Effect<Type>> {
    for (;;) {
      const { document } = await connection.next("signed");
      const { payload } = await verifyDocument("landfall-frame", EffectFrame, document, findKey);
      if (payload.type === type) return payload as Effect<Type>;
    }
  }
  return { ...connection, agentNonce, hello, nextEffect };
}

type Connection = Awaited<ReturnType<typeof connect>>;

async function queueBuild(): Promise<void> {
  apps += 1;
  const config = AppConfigSchema.parse(noopApp(`app${apps}`, { only: [] }));
  await syncApp(server.context, "token:test", { config, sources: {} });
}

async function offerBuild(connection: Connection) {
  await queueBuild();
  const offer = await connection.nextEffect("offer");
  const manifest = await verifyDocument("landfall-manifest", Manifest, offer.manifest, findKey);
  const { payload: grant } = await verifyDocument(
    "landfall-grant",
    LeaseGrant,
    offer.grant,
    findKey,
  );
  return { offer, manifest, grant, key: { jobId: grant.jobId, epoch: grant.epoch } };
}

/** Ends a job so that no other test is offered it. */
async function finishOver(
  connection: Connection,
  key: JobKey,
  status: "succeeded" | "cancelled" = "succeeded",
) {
  connection.send({ type: "accepted", ...key });
  connection.send({ type: "events", ...key, events: [outcomeEvent(1, status)] });
  await connection.nextEffect("ack");
  connection.close();
}

function logEvent(seq: number) {
  return {
    seq,
    at: new Date(0).toISOString(),
    type: "log",
    stream: "stdout",
    line: `line ${seq}`,
  } as const;
}

function outcomeEvent(seq: number, status: "succeeded" | "cancelled" = "succeeded") {
  return { seq, at: new Date(0).toISOString(), type: "outcome", outcome: { status } } as const;
}

function findKey(keyId: string): KeyObject | null {
  const key = server.context.keys.publicKeys[keyId];
  return key ? decodePublicKey(key) : null;
}

async function stateOf({ jobId }: JobKey): Promise<string | undefined> {
  const [job] = await server.database.query<{ state: string }>(
    "select state from jobs where id = $1",
    [jobId],
  );
  return job?.state;
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!(await condition())) {
    assert(Date.now() < deadline, "it did not happen within 10 seconds");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
