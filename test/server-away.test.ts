/** When the server is down, installs keep working. */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { ProcessStatus } from "../src/protocol/supervisor-folder.ts";
import { createPlace, findProcess, killProcess, startSystem, until } from "./system.ts";

test("with the server stopped the deployed app still answers, and is restarted when it crashes", async (t) => {
  const place = await createPlace();
  const system = startSystem(place);
  t.after(async () => {
    await system.stop();
    await place.remove();
  });
  await system.ready();
  // Kill everything of the tenant's side: dev takes server, vendor's registry and build agent with it.
  killProcess(system.child.pid ?? 0, "SIGKILL");
  await until(
    () => findProcess(place.data, /server\.(mjs|ts) .*--config/) === null,
    "the server is gone",
  );
  await assert.rejects(fetch(`${system.url}/healthz`));
  const before = statusOf(place.data, "web");
  assert(before?.process);

  assert.equal(await ask(before), true);
  killProcess(before.process.pid, "SIGKILL");

  await until(() => {
    const now = statusOf(place.data, "web");
    return now?.state === "healthy" && now.process?.pid !== before.process?.pid;
  }, "the app is healthy again");
  const now = statusOf(place.data, "web");
  assert(now);
  assert.equal(now.port, before.port, "its address stays the same");
  assert.equal(await ask(now), true);
});

async function ask({ port }: ProcessStatus): Promise<boolean> {
  const answer = await fetch(`http://127.0.0.1:${port}/api/status`);
  return ((await answer.json()) as { ok: boolean }).ok;
}

function statusOf(data: string, component: string): ProcessStatus | null {
  const [file] = globSync(`installs/*/supervisor/status/${component}.json`, { cwd: data });
  return file ? (JSON.parse(readFileSync(join(data, file), "utf8")) as ProcessStatus) : null;
}
