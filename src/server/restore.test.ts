/** A real PostgreSQL, backed up and restored: the server's memory goes back in time, the agents' does not. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, beforeEach, test } from "node:test";
import { backUp } from "../../test/database-backup.ts";
import { createServerContext, noopApp, type TestServer } from "../../test/server-context.ts";
import { type AgentId, createId, type InstallId } from "../model/ids.ts";
import type { Outcome } from "../model/job.ts";
import { digestOf } from "../model/json.ts";
import { AppConfigSchema } from "../protocol/api.ts";
import { syncApp } from "./apps.ts";
import { newestCheckpoint } from "./history.ts";
import { createInstall, deployInstall } from "./installs.ts";
import { nackJob, offerJobs, startJob } from "./job-machine.ts";
import { cancelJob } from "./jobs.ts";
import { readManifest } from "./manifest.ts";
import { takeOutcome } from "./outcomes.ts";
import { type ToldTry, takeRecalled } from "./recall.ts";
import { reconcileNext } from "./reconcile-install.ts";
import { mustRecall } from "./restore.ts";

let server: TestServer;
let install: InstallId;
let agent: AgentId;
let builder: AgentId;
/** What the install's agent keeps in its journal. */
let told: ToldTry[];

before(async () => {
  server = await createServerContext();
});
after(() => server.close());
beforeEach(async () => {
  await server.database.query("truncate apps, installs, agents, jobs, events, restores cascade");
  told = [];
  builder = await insertAgent(null);
  await sync("first");
  install = await createInstall(server.context, "token:test", {
    app: "app",
    name: "acme",
    inputs: {},
  });
  agent = await insertAgent(install);
  await runAll();
});

test("an agent that remembers more than the database tells holds every install until it has told its part", async () => {
  const restore = await backUp(server.database);
  await deployChange("second");
  const checkpoint = await newestCheckpoint(server.context);
  const before = await stateOfInstall();
  await restore();

  assert(await mustRecall(server.context, { agentId: agent, journal: [], checkpoint }));

  const held = await stateOfInstall();
  assert(held.recall_since);
  assert.equal(held.generation, before.generation + 1);
  await markDue();
  await reconcileAll();
  assert.deepEqual(await offerAll(agent, install), []);
  assert.equal(await countEvents("server.restored"), 1);
});

test("what ran after the back-up is put back, nothing is rolled back, and the install waits for a person", async () => {
  const restore = await backUp(server.database);
  await deployChange("second");
  const deployed = await fingerprints();
  const checkpoint = await newestCheckpoint(server.context);
  await restore();
  assert.notDeepEqual(await fingerprints(), deployed);
  await mustRecall(server.context, { agentId: agent, journal: [], checkpoint });

  await takeRecalled(server.context, teller(), told);

  assert.deepEqual(await fingerprints(), deployed);
  const after = await stateOfInstall();
  assert.equal(after.recall_since, null);
  assert.match(after.pause_reason ?? "", /restored from a back-up; 4 jobs had run here/);
  await markDue();
  await reconcileAll();
  assert.deepEqual(await offerAll(agent, install), []);
  assert.equal(
    await mustRecall(server.context, {
      agentId: agent,
      journal: [],
      checkpoint: await newestCheckpoint(server.context),
    }),
    false,
  );
});

test("a job that the back-up knows as queued, and that ran since, is not run again", async () => {
  await sync("second");
  await runBuilds();
  await deployInstall(server.context, "token:test", "acme", null);
  await reconcileAll();
  const restore = await backUp(server.database);
  const [queued] = await server.database.query<{ id: string }>(
    "select id from jobs where install_id = $1 and state = 'queued' order by id",
    [install],
  );
  await finishAll(agent, await offerAll(agent, install));
  const checkpoint = await newestCheckpoint(server.context);
  await restore();
  await mustRecall(server.context, { agentId: agent, journal: [], checkpoint });

  await takeRecalled(server.context, teller(), told);

  const [job] = await server.database.query<{ state: string; n: number }>(
    "select state, n from jobs where id = $1",
    [queued?.id],
  );
  assert.deepEqual(job, { state: "succeeded", n: 1 });
  assert.equal((await stateOfInstall()).pause_reason, null);
});

test("a try that is older than the one which the back-up knows is not put back", async () => {
  await sync("second");
  await runBuilds();
  await deployInstall(server.context, "token:test", "acme", null);
  await reconcileAll();
  const [older] = await offerAll(agent, install);
  assert(older);
  const { jobId, epoch } = older.key;
  await nackJob(server.database, agent, older.key, "no slot");
  await server.database.query("update jobs set not_before = now() where id = $1", [jobId]);
  const [newer] = await offerAll(agent, install);
  assert.deepEqual(newer?.key, { jobId, epoch: { ...epoch, n: epoch.n + 1 } });

  await takeRecalled(server.context, teller(), [
    { manifest: older.document, epoch, outcome: { status: "failed" } },
  ]);

  const [job] = await server.database.query<{ n: number; state: string }>(
    "select n, state from jobs where id = $1",
    [jobId],
  );
  assert.deepEqual(job, { n: epoch.n + 1, state: "offered" });
});

test("a job that runs at its agent goes on after the restore, under the same epoch", async () => {
  await sync("second");
  await runBuilds();
  await deployInstall(server.context, "token:test", "acme", null);
  const restore = await backUp(server.database);
  await reconcileAll();
  const [running] = await offerAll(agent, install);
  assert(running);
  await startJob(server.database, agent, running.key);
  await restore();
  const journal = [{ ...running.key, state: "running" as const }];

  // Its checkpoint may be from before the back-up: the journal alone tells.
  assert(await mustRecall(server.context, { agentId: agent, journal, checkpoint: null }));
  await takeRecalled(server.context, teller(), [
    ...told,
    { manifest: running.document, epoch: running.key.epoch, outcome: null },
  ]);

  const [job] = await server.database.query<{ state: string; agent_id: string; n: number }>(
    "select state, agent_id, n from jobs where id = $1",
    [running.key.jobId],
  );
  assert.deepEqual(job, { state: "running", agent_id: agent, n: running.key.epoch.n });
});

test("a cancel during the hold is noted: what had ended keeps its outcome, what had not run is cancelled", async () => {
  await sync("second");
  await runBuilds();
  await deployInstall(server.context, "token:test", "acme", null);
  await reconcileAll();
  const restore = await backUp(server.database);
  const queued = await server.database.query<{ id: string }>(
    "select id from jobs where install_id = $1 and state = 'queued' order by id",
    [install],
  );
  await finishAll(agent, await offerAll(agent, install));
  const checkpoint = await newestCheckpoint(server.context);
  await restore();
  await mustRecall(server.context, { agentId: agent, journal: [], checkpoint });
  for (const { id } of queued) await cancelJob(server.context, "token:test", id);

  await takeRecalled(server.context, teller(), told.slice(0, -1));

  const states = await server.database.query<{ id: string; state: string }>(
    "select id, state from jobs where id = any($1) order by id",
    [queued.map(({ id }) => id)],
  );
  const known = new Set(
    told.slice(0, -1).map(({ manifest }) => readManifest(manifest).jobId as string),
  );
  for (const { id, state } of states) {
    assert.equal(state, known.has(id) ? "succeeded" : "cancelled");
  }
  assert(states.some(({ state }) => state === "cancelled"));
});

test("an agent cannot make the server believe in a restore with a checkpoint of its own making", async () => {
  const { position } = await newestCheckpoint(server.context);
  const checkpoint = { position: position + 1000, mark: `${"0".repeat(64)}.${"0".repeat(43)}` };

  const recalls = await mustRecall(server.context, { agentId: agent, journal: [], checkpoint });

  assert.equal(recalls, false);
  assert.equal((await stateOfInstall()).recall_since, null);
});

test("a journal that the server knows nothing of holds that agent's install, and no other", async () => {
  const other = await createInstall(server.context, "token:test", {
    app: "app",
    name: "other",
    inputs: {},
  });
  await insertAgent(other);
  const jobId = createId("job", new Date(), randomBytes);
  const journal = [{ jobId, epoch: { generation: 1, n: 1 }, state: "running" as const }];

  assert(await mustRecall(server.context, { agentId: agent, journal, checkpoint: null }));

  const held = await server.database.query<{ id: string }>(
    "select id from installs where recall_since is not null",
  );
  assert.deepEqual(held, [{ id: install }]);
});

test("of a hundred agents that notice at once one declares the restore", async () => {
  const restore = await backUp(server.database);
  await deployChange("second");
  const checkpoint = await newestCheckpoint(server.context);
  await restore();

  await Promise.all(
    Array.from({ length: 100 }, (_, index) =>
      mustRecall(server.context, {
        agentId: index % 2 ? agent : builder,
        journal: [],
        checkpoint,
      }),
    ),
  );

  assert.equal(await countEvents("server.restored"), 1);
  assert.equal((await stateOfInstall()).generation, 2);
});

test("a manifest that this server did not sign is not put back", async () => {
  const [first] = told;
  assert(first);
  const [head = "", body = ""] = first.manifest.split(".");
  const forged = { ...first, manifest: `${head}.${body}.${"A".repeat(86)}` };

  await assert.rejects(takeRecalled(server.context, teller(), [forged]), { code: "forbidden" });
});

function teller() {
  return { id: agent, install_id: install, generationSeen: 1 };
}

async function sync(value: string): Promise<void> {
  const app = noopApp("app", { a: [], b: ["a"] });
  const components = app.components.map((each) => ({ ...each, config: { value } }));
  await syncApp(server.context, "token:test", {
    config: AppConfigSchema.parse({ ...app, components }),
    sources: {},
  });
}

async function deployChange(value: string): Promise<void> {
  await sync(value);
  await runBuilds();
  await deployInstall(server.context, "token:test", "acme", null);
  await runAll();
}

async function runBuilds(): Promise<void> {
  await finishAll(builder, await offerAll(builder, "build"));
}

/** Until nothing is left to do. */
async function runAll(): Promise<void> {
  for (;;) {
    await reconcileAll();
    const builds = await offerAll(builder, "build");
    const jobs = await offerAll(agent, install);
    if (builds.length + jobs.length === 0) return;
    await finishAll(builder, builds);
    await finishAll(agent, jobs);
  }
}

async function offerAll(agentId: AgentId, queue: string) {
  const jobs = await offerJobs(server.database, { agentId, connection: "newest" }, queue, 100);
  return jobs.map((job) => ({
    key: { jobId: job.id, epoch: { generation: job.generation, n: job.n } },
    document: job.manifest,
    manifest: readManifest(job.manifest),
  }));
}

async function finishAll(
  agentId: AgentId,
  jobs: Awaited<ReturnType<typeof offerAll>>,
): Promise<void> {
  for (const { key, document, manifest } of jobs) {
    const outcome = outcomeFor(manifest);
    await takeOutcome(server.context, agentId, key, outcome);
    if (agentId === agent) told.push({ manifest: document, epoch: key.epoch, outcome });
  }
}

function outcomeFor({ operation, artifact, component }: ReturnType<typeof readManifest>): Outcome {
  const digest = digestOf(Buffer.from(component?.name ?? ""));
  if (operation === "build" && artifact) {
    return {
      status: "succeeded",
      artifact: { repository: artifact.repository, digest, sizeBytes: 1 },
    };
  }
  if (operation === "plan") {
    const plan = {
      planDigest: digest,
      diffDigest: digest,
      baseDigest: digest,
      approvalDigest: digest,
      changes: true,
      diff: "",
    };
    return { status: "succeeded", plan };
  }
  return { status: "succeeded", outputs: {}, outputsHash: "same" };
}

async function insertAgent(installId: InstallId | null): Promise<AgentId> {
  const id = createId("agt", new Date(), randomBytes);
  await server.database.query(
    `insert into agents (id, role, install_id, public_key, connection, connected_at)
     values ($1, $2, $3, $1, 'newest', now())`,
    [id, installId ? "install" : "build", installId],
  );
  return id;
}

async function reconcileAll(): Promise<void> {
  while (await reconcileNext(server.context)) {}
}

function markDue(): Promise<object[]> {
  return server.database.query("update installs set reconcile_due_at = clock_timestamp()");
}

async function fingerprints(): Promise<object[]> {
  return server.database.query(
    "select component, fingerprint from install_components where install_id = $1 order by component",
    [install],
  );
}

async function stateOfInstall() {
  const [row] = await server.database.query<{
    recall_since: Date | null;
    pause_reason: string | null;
    generation: number;
  }>("select recall_since, pause_reason, generation from installs where id = $1", [install]);
  assert(row);
  return row;
}

async function countEvents(kind: string): Promise<number> {
  const [row] = await server.database.query<{ count: number }>(
    "select count(*) from events where kind = $1",
    [kind],
  );
  return row?.count ?? 0;
}
