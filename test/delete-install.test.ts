/** An install is removed as it was made: every component, dependents first, then the sandbox. */
import assert from "node:assert/strict";
import { existsSync, globSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { EventView, JobView } from "../src/protocol/api.ts";
import { createPlace, processesOf, runCommand, startSystem, until } from "./system.ts";

test("installs delete runs the graph backwards with a destroy of every type, and leaves nothing of the install", async (t) => {
  const place = await createPlace();
  const system = startSystem(place);
  t.after(async () => {
    await system.stop();
    await place.remove();
  });
  await system.ready();
  const install = await system.install();

  const { exitCode, output } = await runCommand(place.data, [
    "installs",
    "delete",
    "demo",
    "--yes",
  ]);

  assert.equal(exitCode, 0, output);
  const { jobs } = await system.api<{ jobs: JobView[] }>("/api/jobs?limit=200");
  const destroyed = jobs
    .filter((job) => job.operation === "destroy" && job.install === "demo")
    .sort((a, b) => (a.finishedAt ?? "").localeCompare(b.finishedAt ?? ""))
    .map((job) => job.component ?? "sandbox");
  assert.equal(destroyed.at(-1), "sandbox");
  for (const { name, dependencies } of install.components) {
    for (const dependency of dependencies) {
      assert(
        destroyed.indexOf(name) < destroyed.indexOf(dependency),
        `${name} goes before ${dependency}`,
      );
    }
  }
  assert.equal(new Set(destroyed).size, install.components.length + 1);
  await until(
    () => processesOf(join(place.data, "installs", install.id)).length === 0,
    "no process of the install is left",
  );
  assert.deepEqual(
    globSync(
      join(
        place.data,
        "installs",
        install.id,
        "{store,registry,supervisor/data,supervisor/desired}/*",
      ),
    ),
    [],
  );
  assert(!existsSync(join(place.data, "installs", install.id, "sandbox.json")));
  const { events } = await system.api<{ events: EventView[] }>("/api/events?limit=1000");
  assert(events.some(({ kind }) => kind === "agent.revoked"));
});
