/**
 * Any of the programs killed with -9 in the middle of the first start: the running rest, or the next
 * start, brings the install to the same end, with nothing done twice.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobView } from "../src/protocol/api.ts";
import {
  createPlace,
  findProcess,
  killProcess,
  processesOf,
  runOnce,
  type System,
  startSystem,
  until,
} from "./system.ts";

const programs = [
  [
    "PostgreSQL killed with -9 in the middle of the first start: the install comes to the same end",
    /postgres.*cluster_name=/,
  ],
  [
    "the server killed with -9 in the middle of the first start: the install comes to the same end",
    /server\.(mjs|ts) .*--config/,
  ],
  [
    "the vendor's registry killed with -9 in the middle of the first start: the install comes to the same end",
    /registry\.(mjs|ts) --config \S+\/registry\/config\.json/,
  ],
  [
    "the build agent killed with -9 in the middle of the first start: the install comes to the same end",
    /agent\.(mjs|ts) --config \S+build-agent/,
  ],
] as const;

for (const [name, pattern] of programs) {
  test(name, async (t) => {
    const { system } = await start(t);
    await until(() => /(credentials|database) +building/.test(system.output()), "the first build");
    await killOne(system, pattern);

    await system.ready();

    await assertSameEnd(system);
  });
}

test("the install's agent killed with -9 in the middle of a deploy: its executors go on, and each job ends once", async (t) => {
  const { system } = await start(t);
  await until(() => /credentials +(planning|applying)/.test(system.output()), "the first plan");
  await killOne(system, /agent\.(mjs|ts) --config \S+installs/);

  await system.ready();

  await assertSameEnd(system);
});

test("an executor killed with -9 in the middle of a deploy: its job is tried again, in the next epoch", async (t) => {
  const { system } = await start(t);
  await until(() => /database +(planning|applying)/.test(system.output()), "the database's plan");
  await killOne(system, /^\S*node.*executor\.(mjs|ts)/);

  await system.ready();

  const jobs = await assertSameEnd(system);
  assert(
    jobs.some(({ epoch }) => epoch !== "1.1"),
    "some job has a second epoch",
  );
});

test("the supervisor killed with -9: its processes live on, a new one adopts them, and no job is made", async (t) => {
  const { system } = await start(t);
  await system.ready();
  const before = await jobsOf(system);
  const database = findProcess(system.data, /node .*server\.mjs$|node .*database/);
  await killOne(system, /supervisor\.(mjs|ts) --directory/);

  await until(
    () => findProcess(system.data, /supervisor\.(mjs|ts) --directory/) !== null,
    "a new supervisor",
  );

  assert.equal(findProcess(system.data, /node .*server\.mjs$|node .*database/), database);
  await assertSameEnd(system);
  assert.equal((await jobsOf(system)).length, before.length);
});

test("landfall dev itself killed with -9: the app stays up, and the next start takes over without a job", async (t) => {
  const { place, system } = await start(t);
  await system.ready();
  const { url } = await appOf(system);
  const supervisor = findProcess(place.data, /supervisor\.(mjs|ts) --directory/);
  killProcess(system.child.pid ?? 0, "SIGKILL");
  await until(
    () => findProcess(place.data, /server\.(mjs|ts) .*--config/) === null,
    "the server has followed",
  );

  assert.equal((await fetch(`${url}/healthz`)).status, 200);
  const next = await runOnce(place);

  assert.equal(next.exitCode, 0, next.output);
  assert.equal(next.summary.jobs, 0);
  assert(supervisor);
  assert.deepEqual(processesOf(place.data), []);
});

async function start(t: { after(fn: () => Promise<unknown>): void }) {
  const place = await createPlace();
  const system = startSystem(place);
  t.after(async () => {
    await system.stop();
    await place.remove();
  });
  return { place, system };
}

async function killOne(system: System, pattern: RegExp): Promise<void> {
  let pid: number | null = null;
  await until(() => {
    pid = findProcess(system.data, pattern);
    return pid !== null;
  }, `a process that matches ${pattern}`);
  killProcess(pid ?? 0, "SIGKILL");
}

function jobsOf(system: System): Promise<JobView[]> {
  return system.api<{ jobs: JobView[] }>("/api/jobs?limit=200").then(({ jobs }) => jobs);
}

async function appOf(system: System): Promise<{ url: string }> {
  const install = await system.install();
  const output = install.components.find(({ name }) => name === "web")?.outputs.url;
  assert(output && !output.sensitive && typeof output.value === "string");
  return { url: output.value };
}

/** Every component is active, the app answers, every job has ended once, and none failed. */
async function assertSameEnd(system: System): Promise<JobView[]> {
  await until(
    async () => (await system.install().catch(() => null))?.settled === true,
    "the install is settled",
  );
  const install = await system.install();
  assert.deepEqual(
    install.components.map(({ name, state }) => `${name} ${state}`).sort(),
    ["credentials", "database", "greeter", "migration", "theme", "web"].map(
      (name) => `${name} active`,
    ),
  );
  const { url } = await appOf(system);
  const status = (await (await fetch(`${url}/api/status`)).json()) as { ok: boolean };
  assert.equal(status.ok, true);
  const jobs = await jobsOf(system);
  assert(
    jobs.every(({ state }) => state === "succeeded"),
    JSON.stringify(jobs.filter((job) => job.state !== "succeeded")),
  );
  const applies = jobs
    .filter(({ operation }) => operation === "apply")
    .map(({ component }) => component);
  assert.equal(new Set(applies).size, applies.length, "nothing is applied twice");
  return jobs;
}
