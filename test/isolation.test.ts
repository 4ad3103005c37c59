/** A job sees its own folder and what its operation needs, and nothing else of the machine. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createPlace, startSystem } from "./system.ts";

test("in bubblewrap a job reads neither the server's keys nor the agent's, and its environment is clean", async (t) => {
  const place = await createPlace();
  const environment = { ...process.env, SECRET_OF_THE_MACHINE: "x", DATABASE_URL: "" };
  const app = join(import.meta.dirname, "fixtures/prying-app");
  const system = startSystem({ ...place, app, environment });
  t.after(async () => {
    await system.stop();
    await place.remove();
  });
  await system.ready();

  const [component] = (await system.install()).components;

  const seen = (name: string) => {
    const output = component?.outputs[name];
    return output && !output.sensitive ? output.value : null;
  };
  assert.equal(component?.state, "active", system.output());
  assert.equal(seen("readable"), "nothing");
  for (const folder of ["/usr", "/etc", "/tmp", place.data, join(place.data, "server")]) {
    assert(!existsSync(join(folder, "landfall-job-was-here")), `a job wrote to ${folder}`);
  }
  assert.equal(
    seen("environment"),
    "HOME LANDFALL_COMPONENT LANDFALL_INSTALL_ID LANDFALL_INSTALL_NAME LANDFALL_JOB LANDFALL_OUTPUTS LANDFALL_STATE_DIR LANG PATH",
  );
});
