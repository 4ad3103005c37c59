/** Reconcile against a real PostgreSQL: the lock, the index behind it, and what outcomes lead to. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, before, test } from "node:test";
import { createServerContext, noopApp, type TestServer } from "../../test/server-context.ts";
import type { AppConfig } from "../model/app-config.ts";
import { type AgentId, createId } from "../model/ids.ts";
import type { Outcome } from "../model/job.ts";
import { digestOf } from "../model/json.ts";
import { AppConfigSchema, type SyncRequest } from "../protocol/api.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { syncApp } from "./apps.ts";
import { createInstall, deleteInstall, deployInstall } from "./installs.ts";
import { offerJobs } from "./job-machine.ts";
import { cancelJob } from "./jobs.ts";
import { readManifest } from "./manifest.ts";
import { takeOutcome } from "./outcomes.ts";
import { reconcileNext } from "./reconcile-install.ts";

let server: TestServer;
const agent = createId("agt", new Date(), randomBytes) as AgentId;

before(async () => {
  server = await createServerContext();
  await server.database.query(
    "insert into agents (id, role, public_key, connection, connected_at) values ($1, 'build', $1, 'newest', now())",
    [agent],
  );
});
after(() => server.close());

test("two servers and fifty triggers at once make the same jobs as one", async () => {
  const install = await createActiveInstall("many", { a: [], b: [], c: [], d: ["a", "b", "c"] });
  await forgetJobs(install);
  const other = { ...server.context, serverId: "other" };

  await Promise.all(
    Array.from({ length: 50 }, async (_, index) => {
      await markDue(install);
      await reconcileNext(index % 2 ? server.context : other);
    }),
  );
  await settleReconcile();

  const jobs = await server.database.query<{ component: string; operation: string }>(
    "select component, operation from jobs where install_id = $1 and component is not null order by component",
    [install],
  );
  assert.deepEqual(
    jobs.map((job) => `${job.operation} ${job.component}`),
    ["sync a", "sync b", "sync c", "sync d"],
  );
});

test("the row's lock alone is enough: without the index behind it the jobs are the same", async () => {
  const install = await createActiveInstall("locked", { a: [], b: [], c: [] });
  await forgetJobs(install);
  const [index] = await server.database.query<{ definition: string }>(
    "select indexdef as definition from pg_indexes where indexname = 'jobs_one_unfinished'",
  );
  await server.database.query("drop index jobs_one_unfinished");
  try {
    await Promise.all(
      Array.from({ length: 50 }, async () => {
        await markDue(install);
        await reconcileNext(server.context);
      }),
    );

    const jobs = await server.database.query(
      "select 1 from jobs where install_id = $1 and component is not null",
      [install],
    );
    assert.equal(jobs.length, 3);
  } finally {
    await server.database.query(index?.definition ?? "");
  }
});

test("an install comes to rest with every component applied, in the order of the graph", async () => {
  const install = await createActiveInstall("chain", {
    first: [],
    second: ["first"],
    third: ["second"],
  });

  const operations = await runToRest(install);

  const applies = operations.filter((operation) => operation.startsWith("apply"));
  assert.deepEqual(applies, ["apply first", "apply second", "apply third"]);
  assert.equal(operations.length, 9);
});

test("a deploy of what is already there makes no job", async () => {
  const install = await createActiveInstall("again", { only: [] });
  await runToRest(install);

  await deployInstall(server.context, "token:test", "again", null);

  assert.deepEqual(await runToRest(install), []);
});

test("a plan's approval is recorded, and the apply's manifest names its digest", async () => {
  const install = await createActiveInstall("approved", { only: [] });
  await runToRest(install);

  const [approval] = await server.database.query<{ approval_digest: string; approved_by: string }>(
    "select approval_digest, approved_by from approvals where install_id = $1",
    [install],
  );
  const [job] = await server.database.query<{ manifest: string }>(
    "select manifest from jobs where install_id = $1 and operation = 'apply'",
    [install],
  );
  assert.equal(approval?.approved_by, "policy:automatic");
  assert.equal(
    readManifest(job?.manifest ?? "").approval?.approvalDigest,
    approval?.approval_digest,
  );
});

test("deleting runs the graph backwards, then the sandbox, and revokes the agent", async () => {
  const install = await createActiveInstall("gone", { low: [], high: ["low"] });
  await runToRest(install);
  await server.database.query(
    "insert into agents (id, role, install_id, public_key) values ($1, 'install', $2, 'key')",
    [createId("agt", new Date(), randomBytes), install],
  );

  await deleteInstall(server.context, "token:test", "gone");

  assert.deepEqual(await runToRest(install), ["destroy high", "destroy low", "destroy sandbox"]);
  const [row] = await server.database.query<{ state: string; revoked: boolean }>(
    `select state, (select revoked_at is not null from agents where install_id = installs.id) as revoked
     from installs where id = $1`,
    [install],
  );
  assert.deepEqual(row, { state: "deleted", revoked: true });
});

test("a failed apply is remembered, so that it is destroyed with the rest", async () => {
  const install = await createActiveInstall("broken", { only: [] });
  await runToRest(install, (operation) => (operation === "apply" ? "failed" : "succeeded"));

  await deleteInstall(server.context, "token:test", "broken");

  assert.deepEqual(await runToRest(install), ["destroy only", "destroy sandbox"]);
});

test("a cancelled job ends the matter until the next deploy", async () => {
  const install = await createActiveInstall("stopped", { only: [] });
  await settleReconcile();
  const [job] = await server.database.query<{ id: string }>(
    "select id from jobs where install_id = $1 and state = 'queued'",
    [install],
  );

  await cancelJob(server.context, "token:test", job?.id ?? "");

  assert.deepEqual(await runToRest(install), []);
  await deployInstall(server.context, "token:test", "stopped", null);
  assert.deepEqual(await runToRest(install), ["sync only", "plan only", "apply only"]);
});

test("the same description again makes no configuration and no build", async () => {
  const config = noopApp("same", { one: [] });
  const first = await syncApp(server.context, "token:test", {
    config: mutable(config),
    sources: {},
  });
  const second = await syncApp(server.context, "token:test", {
    config: mutable(config),
    sources: {},
  });

  assert.deepEqual([first.changed, second.changed], [true, false]);
  assert.deepEqual(second.builds, first.builds);
});

test("a dependency cycle is refused at the door and changes nothing", async () => {
  const config = noopApp("circle", { a: ["b"], b: ["a"] });

  await assert.rejects(
    syncApp(server.context, "token:test", { config: mutable(config), sources: {} }),
    {
      code: "invalid",
      message: /cycle/,
    },
  );

  assert.deepEqual(await server.database.query("select 1 from apps where name = 'circle'"), []);
});

async function createActiveInstall(
  name: string,
  graph: Readonly<Record<string, readonly string[]>>,
): Promise<string> {
  await syncApp(server.context, "token:test", {
    config: mutable(noopApp(name, graph)),
    sources: {},
  });
  const install = await createInstall(server.context, "token:test", {
    app: name,
    name,
    inputs: {},
  });
  await settleReconcile();
  // The builds, then the sandbox.
  for (let queued = await offerAll("build"); queued.length > 0; queued = await offerAll("build")) {
    for (const { key, manifest } of queued) await finish(key, manifest, "succeeded");
    await settleReconcile();
  }
  return install;
}

/** As if nothing had been reconciled yet. */
function forgetJobs(install: string): Promise<object[]> {
  return server.database.query("delete from jobs where install_id = $1 and component is not null", [
    install,
  ]);
}

function markDue(install: string): Promise<object[]> {
  return server.database.query(
    "update installs set reconcile_due_at = clock_timestamp() where id = $1",
    [install],
  );
}

async function settleReconcile(): Promise<void> {
  while (await reconcileNext(server.context)) {}
}

/** Plays the agent until there is nothing to do, and tells what was done, in order. */
async function runToRest(
  install: string,
  verdict: (operation: string) => Outcome["status"] = () => "succeeded",
): Promise<string[]> {
  const done: string[] = [];
  for (;;) {
    await settleReconcile();
    const offers = [...(await offerAll(install)), ...(await offerAll("build"))];
    if (offers.length === 0) return done;
    for (const { key, manifest } of offers) {
      done.push(`${manifest.operation} ${manifest.component?.name ?? "sandbox"}`);
      await finish(key, manifest, verdict(manifest.operation));
    }
  }
}

async function offerAll(queue: string) {
  const jobs = await offerJobs(
    server.database,
    { agentId: agent, connection: "newest" },
    queue,
    100,
  );
  return jobs.map((job) => ({
    key: { jobId: job.id, epoch: { generation: job.generation, n: job.n } },
    manifest: readManifest(job.manifest),
  }));
}

function finish(
  key: JobKey,
  manifest: ReturnType<typeof readManifest>,
  status: Outcome["status"],
): Promise<boolean> {
  const name = manifest.component?.name ?? "";
  const artifact = { repository: `app/${name}`, digest: digestOf(name), sizeBytes: 1 };
  const plan = {
    planDigest: digestOf("p"),
    diffDigest: digestOf("d"),
    baseDigest: digestOf("b"),
    approvalDigest: digestOf(`approval ${key.jobId}`),
    changes: true,
    diff: "",
  };
  const outcome: Outcome = {
    status,
    ...(manifest.operation === "build" ? { artifact } : {}),
    ...(manifest.operation === "plan" ? { plan } : {}),
    ...(manifest.operation === "apply" || manifest.operation === "provision"
      ? { outputsHash: "h", outputs: {} }
      : {}),
  };
  return takeOutcome(server.context, agent, key, outcome);
}

/** As it comes from the wire. */
function mutable(config: AppConfig): SyncRequest["config"] {
  return AppConfigSchema.parse(config);
}
