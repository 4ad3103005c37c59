/**
 * The server's database put back to an older copy while the install went on: nothing is rolled back,
 * nothing runs twice, and the install waits for a person.
 */
import assert from "node:assert/strict";
import { globSync } from "node:fs";
import { cp, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import type { InstallView, JobView } from "../src/protocol/api.ts";
import { createPlace, runCommand, type System, startSystem, until } from "./system.ts";

test("back up, deploy, restore: what was deployed since stays, runs no second time, and waits for a person", async (t) => {
  const place = await createPlace();
  let system: System | null = null;
  t.after(async () => {
    await system?.stop();
    await place.remove();
  });
  const { data: app, remove: removeApp } = await createPlace();
  t.after(removeApp);
  const options = { ...place, app };
  await writeApp(app, "first");
  system = startSystem(options);
  await system.ready();
  await system.stop();
  const backup = join(app, "backup");
  await cp(join(place.data, "postgres"), backup, { recursive: true });

  await writeApp(app, "second");
  system = startSystem(options);
  await system.ready();
  assert.deepEqual(await outputsOf(system), ["second", "second"]);
  await system.stop();
  const launched = countLaunches(place.data);
  assert.equal(launched, 10, "two copies, four plans and four applies");
  await rm(join(place.data, "postgres"), { recursive: true });
  await cp(backup, join(place.data, "postgres"), { recursive: true });

  // The vendor's folder says what the back-up says: a careless server would deploy it again.
  await writeApp(app, "first");
  system = startSystem(options);
  const restored = system;
  await until(
    async () => (await installOf(restored).catch(() => null))?.pause != null,
    () => `the install is paused; it said:\n${restored.output()}`,
    60_000,
  );

  const { pause } = await restored.install();
  assert.match(pause?.reason ?? "", /restored from a back-up; 4 jobs had run here since/);
  assert.deepEqual(await outputsOf(restored), ["second", "second"]);
  const { jobs } = await restored.api<{ jobs: JobView[] }>("/api/jobs?limit=200");
  assert(jobs.every(({ state }) => state === "succeeded" || state === "cancelled"));
  await until(
    async () => (await restored.install()).agent?.connected === true,
    "the agent, having told its part, is connected again",
  );

  // The person says what should run: what runs already. Nothing is to be done.
  await writeApp(app, "second");
  const sync = await runCommand(place.data, ["sync", app]);
  assert.equal(sync.exitCode, 0, sync.output);
  await restored.api("/api/installs/demo/deploy", { ...post, body: "{}" });
  await restored.api("/api/installs/demo/resume", post);
  await until(async () => (await restored.install()).settled, "the install is settled again");
  assert.equal((await restored.install()).pause, null);
  assert.deepEqual(await outputsOf(restored), ["second", "second"]);
  await restored.stop();
  assert.equal(countLaunches(place.data), launched, "nothing ran again");
});

/** Every try that the install's agent has ever launched, by its own journal; the agent must be stopped. */
function countLaunches(data: string): number {
  const [path = ""] = globSync(join(data, "installs/*/agent/journal.db"));
  const journal = new DatabaseSync(path, { readOnly: true });
  const row = journal.prepare("select count(*) as count from epochs").get();
  journal.close();
  return Number(row?.count);
}

const post = { method: "POST", headers: { "content-type": "application/json" } };

async function installOf(system: System): Promise<InstallView> {
  return system.install();
}

async function outputsOf(system: System): Promise<unknown[]> {
  const { components } = await system.install();
  return components.map(({ outputs }) => {
    const value = outputs.value;
    return value && !value.sensitive ? value.value : null;
  });
}

async function writeApp(folder: string, value: string): Promise<void> {
  await mkdir(join(folder, "components"), { recursive: true });
  await writeFile(
    join(folder, "metadata.toml"),
    'version = "v2"\nname = "restore"\ndisplay_name = "restore"\n',
  );
  await writeFile(join(folder, "sandbox.toml"), 'type = "local"\n');
  for (const [name, dependencies] of [
    ["a", "[]"],
    ["b", '["a"]'],
  ]) {
    await writeFile(
      join(folder, "components", `${name}.toml`),
      `name = "${name}"\ntype = "noop"\ndependencies = ${dependencies}\n` +
        `[outputs]\nvalue = "${value}"\n`,
    );
  }
}
