/** Pauses, drains, limits and replaced agents on a real PostgreSQL, with the job machine beside them. */
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { after, before, test } from "node:test";
import { createActiveInstall, insertJob, releaseApp, syncNoopApp } from "../../test/http-server.ts";
import { createServerContext, type TestServer } from "../../test/server-context.ts";
import { type AgentId, createId } from "../model/ids.ts";
import { encodePublicKey } from "../protocol/signed-document.ts";
import { enrolAgent } from "./enrolment.ts";
import {
  drainAgent,
  pauseInstall,
  replaceAgent,
  resumeInstall,
  setJobsMax,
  undrainAgent,
} from "./holds.ts";
import { deleteInstall, deployInstall } from "./installs.ts";
import { expireStarts, offerJobs } from "./job-machine.ts";
import { reconcileNext } from "./reconcile-install.ts";
import { viewInstallById } from "./views.ts";

let server: TestServer;
before(async () => {
  server = await createServerContext();
  await syncNoopApp(server, "app", { a: [], b: ["a"] });
  await releaseApp(server, "app");
});
after(() => server.close());

test("a paused install gets no new job and none of its jobs is offered; what runs goes on, and a resume makes up for it", async () => {
  const { id, agent } = await createConnectedInstall("paused");
  await deployInstall(server.context, "server", "paused", null);
  await reconcileAll();
  const [running] = await offer(agent, id, 1);
  assert(running);

  await pauseInstall(server.context, "token:tok_1", "paused", "audit week");
  await deployInstall(server.context, "server", "paused", null);
  await server.database.query("delete from jobs where install_id = $1 and state = 'queued'", [id]);
  await reconcileAll();

  const view = await viewInstallById(server.context, id);
  assert.deepEqual([view.pause?.reason, view.pause?.by], ["audit week", "token:tok_1"]);
  assert.deepEqual(await jobStates(id), ["offered"]);
  const component = running.component === "a" ? "b" : "a";
  await insertJob(server, id, { component, operation: "sync", state: "queued" });
  assert.deepEqual(await offer(agent, id, 5), []);

  const woken = listenTo(["reconcile", `jobs:${id}`, "live"]);
  await resumeInstall(server.context, "server", "paused");
  await reconcileAll();

  assert.deepEqual(woken(), ["reconcile", `jobs:${id}`, "live"]);
  assert.equal((await viewInstallById(server.context, id)).pause, null);
  assert.equal((await offer(agent, id, 5)).length, 1);
});

test("reconcile makes no job for a paused or a restored install, and makes them all after it", async () => {
  const { id } = await createConnectedInstall("quiet");
  await pauseInstall(server.context, "server", "quiet", "why not");
  await deployInstall(server.context, "server", "quiet", null);
  await reconcileAll();
  assert.deepEqual(await jobStates(id), []);
  await resumeInstall(server.context, "server", "quiet");
  await server.database.query("update installs set recall_since = now() where id = $1", [id]);
  await reconcileAll();
  assert.deepEqual(await jobStates(id), []);

  await server.database.query(
    "update installs set recall_since = null, reconcile_due_at = now() where id = $1",
    [id],
  );
  await reconcileAll();

  assert.deepEqual(await jobStates(id), ["queued", "queued"]);
});

test("a second pause changes the reason and who gave it, not since when; both are events", async () => {
  const { id } = await createConnectedInstall("twice");
  await pauseInstall(server.context, "token:tok_1", "twice", "first");
  const first = await viewInstallById(server.context, id);

  await pauseInstall(server.context, "token:tok_2", "twice", "second");

  const second = await viewInstallById(server.context, id);
  assert.deepEqual(second.pause, {
    reason: "second",
    by: "token:tok_2",
    since: first.pause?.since,
  });
  assert.deepEqual(await eventsOf(id, "install.pause%"), [
    "install.paused token:tok_1 first",
    "install.pause_changed token:tok_2 second",
  ]);
});

test("time in a pause counts against no job's limit to start", async () => {
  const { id } = await createConnectedInstall("patient");
  const jobId = await insertJob(server, id, { component: "a", operation: "sync", state: "queued" });
  await pauseInstall(server.context, "server", "patient", "an hour");
  // An hour has passed: the job had half an hour left when the pause began.
  await server.database.query(
    "update installs set paused_at = now() - interval '1 hour' where id = $1",
    [id],
  );
  await server.database.query(
    `update jobs set created_at = now() - interval '2 hours', start_by = now() - interval '30 minutes'
     where id = $1`,
    [jobId],
  );
  const expired = await expireStarts(server.database);

  await resumeInstall(server.context, "server", "patient");

  const [row] = await server.database.query<{ minutes: number }>(
    "select round(extract(epoch from start_by - clock_timestamp()) / 60)::int as minutes from jobs where id = $1",
    [jobId],
  );
  assert.deepEqual([expired, row?.minutes], [[], 30]);
  assert.deepEqual(await expireStarts(server.database), []);
});

test("a resume of an install that is not paused changes nothing", async () => {
  const { id } = await createConnectedInstall("awake");
  const jobId = await insertJob(server, id, { component: "a", operation: "sync", state: "queued" });
  await server.database.query("update jobs set start_by = '2030-01-01T00:00:00Z' where id = $1", [
    jobId,
  ]);

  await resumeInstall(server.context, "server", "awake");
  // Held by a restore, which a resume does not end.
  await server.database.query(
    "update installs set recall_since = now() - interval '1 hour' where id = $1",
    [id],
  );
  await server.database.query(
    "update jobs set created_at = now() - interval '1 day' where id = $1",
    [jobId],
  );
  await resumeInstall(server.context, "server", "awake");

  const [row] = await server.database.query<{ start_by: Date }>(
    "select start_by from jobs where id = $1",
    [jobId],
  );
  assert.equal(row?.start_by.toISOString(), "2030-01-01T00:00:00.000Z");
  assert.deepEqual(await eventsOf(id, "install.resumed"), []);
});

test("deleting a paused install is accepted, and waits for the resume", async () => {
  const { id } = await createConnectedInstall("leaving");
  await pauseInstall(server.context, "server", "leaving", "hold on");

  await deleteInstall(server.context, "server", "leaving");
  await reconcileAll();
  const held = await jobStates(id);
  await resumeInstall(server.context, "server", "leaving");
  await reconcileAll();

  assert.deepEqual([held, await jobStates(id)], [[], ["queued"]]);
  assert.equal((await viewInstallById(server.context, id)).state, "deleting");
});

test("no more jobs of an install are under way than its limit allows, until the limit is gone", async () => {
  const { id, agent } = await createConnectedInstall("limited");
  await deployInstall(server.context, "server", "limited", null);
  await reconcileAll();
  await setJobsMax(server.context, "server", "limited", 1);

  const first = await offer(agent, id, 5);
  const second = await offer(agent, id, 5);
  await setJobsMax(server.context, "server", "limited", null);
  const third = await offer(agent, id, 5);

  assert.deepEqual([first.length, second.length, third.length], [1, 0, 1]);
  assert.equal((await viewInstallById(server.context, id)).jobsMax, null);
  assert.equal((await eventsOf(id, "install.limited")).length, 2);
});

test("a draining agent, named by its id or by its install, keeps what it has and gets nothing new", async () => {
  const { id, agent } = await createConnectedInstall("drained");
  await deployInstall(server.context, "server", "drained", null);
  await reconcileAll();
  const before = await offer(agent, id, 1);

  await drainAgent(server.context, "server", "drained", "new disk");
  const during = await offer(agent, id, 5);
  const view = await viewInstallById(server.context, id);
  await drainAgent(server.context, "server", agent, "newer disk");
  const woken = listenTo([`jobs:${id}`]);
  await undrainAgent(server.context, "server", agent);
  const after = await offer(agent, id, 5);

  assert.deepEqual([before.length, during.length, after.length], [1, 0, 1]);
  assert.deepEqual([view.agent?.draining, view.agent?.jobs], ["new disk", 1]);
  assert.deepEqual(woken(), [`jobs:${id}`]);
  assert.deepEqual(await eventsOf(id, "agent.%drain%"), [
    "agent.draining server new disk",
    "agent.drain_changed server newer disk",
    "agent.undrained server ",
  ]);
});

test("replacing an agent revokes its key, raises the generation, and gives the one code that is good", async () => {
  const { id, agent } = await createConnectedInstall("replaced");
  await deployInstall(server.context, "server", "replaced", null);
  await reconcileAll();
  const [held] = await offer(agent, id, 1);
  const woken = listenTo([`agent:${agent}`]);

  const stale = await replaceAgent(server.context, "token:tok_1", "replaced");
  const fresh = await replaceAgent(server.context, "token:tok_1", "replaced");

  assert.deepEqual(woken(), [`agent:${agent}`]);
  assert.deepEqual(await offer(agent, id, 5), []);
  const [job] = await server.database.query<{ agent_id: string; state: string }>(
    "select agent_id, state from jobs where id = $1",
    [held?.id],
  );
  assert.deepEqual(job, { agent_id: agent, state: "offered" });
  await assert.rejects(enrolAgent(server.context, stale.code, newKey()), { message: /expired/ });
  const enrolled = await enrolAgent(server.context, fresh.code, newKey());
  const rows = await server.database.query<{ id: string; generation: number; revoked: boolean }>(
    `select id, generation, revoked_at is not null as revoked from agents where install_id = $1
     order by revoked_at nulls last`,
    [id],
  );
  assert.deepEqual(rows, [
    { id: agent, generation: 1, revoked: true },
    { id: enrolled.agentId, generation: 2, revoked: false },
  ]);
  assert.deepEqual(await eventsOf(id, "agent.replaced"), ["agent.replaced token:tok_1 "]);
});

test("an agent cannot be replaced where there never was one, nor drained once it is revoked", async () => {
  await createActiveInstall(server, "app", "empty", { capabilities: [], missing: {} });
  const { agent } = await createConnectedInstall("gone");
  await replaceAgent(server.context, "server", "gone");
  const context = server.context;

  await assert.rejects(replaceAgent(context, "server", "empty"), {
    code: "conflict",
    message: /never had one.*agents code --install empty/,
  });
  await assert.rejects(drainAgent(context, "server", agent, "x"), { message: /was revoked/ });
  await assert.rejects(drainAgent(context, "server", "gone", "x"), { message: /has none/ });
  await assert.rejects(pauseInstall(context, "server", "nowhere", "x"), { code: "not_found" });
  const unknown = createId("agt", new Date(), context.random);
  await assert.rejects(undrainAgent(context, "server", unknown), { code: "not_found" });
});

/** An install with a sandbox and a connected agent. */
async function createConnectedInstall(name: string): Promise<{ id: string; agent: AgentId }> {
  const { database, context } = server;
  const id = await createActiveInstall(server, "app", name, { capabilities: [], missing: {} });
  const agent = createId("agt", context.now(), context.random);
  await database.query(
    `insert into agents (id, role, install_id, public_key, connection, connected_at)
     values ($1, 'install', $2, $1, 'newest', now())`,
    [agent, id],
  );
  return { id, agent };
}

function offer(agentId: AgentId, queue: string, limit: number) {
  return offerJobs(server.database, { agentId, connection: "newest" }, queue, limit);
}

async function reconcileAll(): Promise<void> {
  while (await reconcileNext(server.context));
}

async function jobStates(installId: string): Promise<string[]> {
  const rows = await server.database.query<{ state: string }>(
    "select state from jobs where install_id = $1 order by state",
    [installId],
  );
  return rows.map(({ state }) => state);
}

async function eventsOf(installId: string, kind: string): Promise<string[]> {
  const rows = await server.database.query<{ kind: string; actor: string; reason: string | null }>(
    `select kind, actor, data ->> 'reason' as reason from events
     where install_id = $1 and kind like $2 order by id`,
    [installId, kind],
  );
  return rows.map((row) => `${row.kind} ${row.actor} ${row.reason ?? ""}`);
}

type Topic = Parameters<TestServer["context"]["wake"]["listen"]>[0];

/** Which of these topics were woken since, each once. */
function listenTo(topics: readonly Topic[]): () => Topic[] {
  const heard = new Set<Topic>();
  const stops = topics.map((topic) => server.context.wake.listen(topic, () => heard.add(topic)));
  return () => {
    for (const stop of stops) stop();
    return topics.filter((topic) => heard.has(topic));
  };
}

function newKey(): string {
  return encodePublicKey(generateKeyPairSync("ed25519").publicKey);
}
