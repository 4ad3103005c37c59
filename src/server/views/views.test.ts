/** What people see of rows in a real PostgreSQL. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  createActiveInstall,
  insertDeployed,
  insertJob,
  type ListeningServer,
  releaseApp,
  startHttp,
  syncNoopApp,
} from "../../../test/http-server.ts";
import { InstallView, LiveView } from "../../protocol/api.ts";
import { createInstall } from "../installs.ts";
import { listEvents, listJobs, viewInstallById, viewLive } from "../views.ts";

let server: ListeningServer;
before(async () => {
  server = await startHttp();
});
after(() => server.close());

const noNeeds = { capabilities: ["process"], missing: {} };

test("an install without a release shows the builds of the newest configuration", async () => {
  await syncNoopApp(server, "fresh", { a: [], b: ["a"] });
  const id = await createInstall(server.context, "server", {
    app: "fresh",
    name: "fresh",
    inputs: {},
  });

  const view = InstallView.parse(await viewInstallById(server.context, id));

  assert.deepEqual(
    view.components.map(({ name, state }) => `${name} ${state}`),
    ["a building", "b building"],
  );
  assert.match(view.components[0]?.jobId ?? "", /^job_/);
  assert.equal(view.settled, false);
});

test("an install whose every component is active or disabled is settled", async () => {
  await syncNoopApp(server, "calm", { a: [], b: ["a"], cloud: [] }, (config) => ({
    ...config,
    components: config.components.map((component) =>
      component.name === "cloud" ? { ...component, needs: ["terraform"] } : component,
    ),
  }));
  await releaseApp(server, "calm");
  const id = await createActiveInstall(server, "calm", "calm", {
    capabilities: ["process"],
    missing: { terraform: "not on the path" },
  });
  await insertDeployed(server, id, "a", { url: { sensitive: false, value: "http://a" } });
  const halfway = await viewInstallById(server.context, id);
  await insertDeployed(server, id, "b");

  const view = InstallView.parse(await viewInstallById(server.context, id));

  assert.equal(halfway.settled, false);
  assert.equal(view.settled, true);
  assert.deepEqual(
    view.components.map(({ name, state, reason }) => [name, state, reason]),
    [
      ["a", "active", null],
      ["b", "active", null],
      ["cloud", "disabled", "needs terraform: not on the path"],
    ],
  );
  assert.deepEqual(view.components[0]?.outputs, { url: { sensitive: false, value: "http://a" } });
});

test("a failed component settles an install, and what waits for it says so; the next deploy forgets it", async () => {
  await syncNoopApp(server, "broken", { a: [], b: ["a"] });
  await releaseApp(server, "broken");
  const id = await createActiveInstall(server, "broken", "broken", noNeeds);
  await insertJob(server, id, { component: "a", operation: "plan", state: "succeeded" });
  const failed = await insertJob(server, id, {
    component: "a",
    operation: "apply",
    state: "failed",
    message: "Exit code 3.",
  });
  await server.database.query("update installs set reconcile_due_at = null where id = $1", [id]);

  const view = await viewInstallById(server.context, id);
  await server.database.query("update installs set deploy = deploy + 1 where id = $1", [id]);
  const later = await viewInstallById(server.context, id);

  assert.equal(view.settled, true);
  const [a, b] = view.components;
  assert.deepEqual(
    [a?.state, a?.reason, a?.jobId],
    ["failed", "operation_failed: Exit code 3.", failed],
  );
  assert.deepEqual([b?.state, b?.reason], ["waiting", "waits for `a`, which failed"]);
  assert.equal(later.components[0]?.state, "waiting");
});

test("an unfinished job, or a reconcile that is due, keeps an install from being settled", async () => {
  await syncNoopApp(server, "busy", { a: [] });
  await releaseApp(server, "busy");
  const id = await createActiveInstall(server, "busy", "busy", noNeeds);
  await insertDeployed(server, id, "a");
  const settled = await viewInstallById(server.context, id);
  await server.database.query("update installs set reconcile_due_at = now() where id = $1", [id]);
  const due = await viewInstallById(server.context, id);
  await server.database.query("update installs set reconcile_due_at = null where id = $1", [id]);
  const jobId = await insertJob(server, id, {
    component: "a",
    operation: "apply",
    state: "running",
  });
  server.context.progress.set(jobId, { label: "x", done: 1, total: 4 });

  const running = await viewInstallById(server.context, id);

  assert.deepEqual([settled.settled, due.settled, running.settled], [true, false, false]);
  assert.equal(running.components[0]?.state, "applying");
  assert.deepEqual(running.components[0]?.progress, { done: 1, total: 4 });
});

test("a component that the new release no longer has is shown until it is gone", async () => {
  await syncNoopApp(server, "shrinking", { a: [], old: [] });
  await releaseApp(server, "shrinking");
  const id = await createActiveInstall(server, "shrinking", "shrinking", noNeeds);
  await insertDeployed(server, id, "a");
  await insertDeployed(server, id, "old");
  await syncNoopApp(server, "shrinking", { a: [] });
  const next = await releaseApp(server, "shrinking");
  await server.database.query("update installs set release_id = $2 where id = $1", [id, next]);
  const before = await viewInstallById(server.context, id);
  const destroying = await insertJob(server, id, {
    component: "old",
    operation: "destroy",
    state: "running",
  });

  const view = await viewInstallById(server.context, id);

  assert.deepEqual(before.components.at(-1)?.reason, "is to be removed");
  assert.equal(before.settled, false);
  assert.deepEqual(
    view.components.map(({ name, state, jobId }) => [name, state, jobId]),
    [
      ["a", "active", null],
      ["old", "destroying", destroying],
    ],
  );
});

test("jobs come newest first, in pages that neither skip nor repeat one", async () => {
  await syncNoopApp(server, "paged", { a: [] });
  await releaseApp(server, "paged");
  const id = await createActiveInstall(server, "paged", "paged", noNeeds);
  const made: string[] = [];
  for (let index = 0; index < 7; index++) {
    made.push(
      await insertJob(server, id, { component: "a", operation: "plan", state: "succeeded" }),
    );
  }

  const seen: string[] = [];
  let after: string | null = null;
  do {
    const page = await listJobs(server.database, { installId: id, state: null, after, limit: 3 });
    seen.push(...page.jobs.map((job) => job.id));
    after = page.next;
  } while (after !== null);

  assert.deepEqual(seen, made.reverse());
});

test("events of an install are read in order, page by page", async () => {
  const first = await listEvents(server.database, {
    installId: null,
    jobId: null,
    after: 0,
    limit: 2,
  });
  const second = await listEvents(server.database, {
    installId: null,
    jobId: null,
    after: Number(first.next),
    limit: 2,
  });

  const ids = [...first.events, ...second.events].map((event) => Number(event.id));
  assert.equal(ids.length, 4);
  assert.deepEqual(
    ids,
    [...ids].sort((a, b) => a - b),
  );
});

test("the live view has the documented shape, whatever the installs are doing", async () => {
  const view = await viewLive(server.context);

  assert.deepEqual(LiveView.parse(view), view);
  assert(view.installs.length >= 6);
});
