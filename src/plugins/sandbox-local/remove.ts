/**
 * Removes a local install: asks its supervisor to stop everything, waits, and removes the folder.
 *
 * The supervisor itself is ended by whoever started it, as soon as `sandbox.json` is gone. Whether it
 * lives cannot be seen from a job's own pid namespace, so its status files are what is waited for.
 */
import { readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { errorCode } from "../../model/file-fault.ts";
import type { PluginContext } from "../../plugin/plugin.ts";
import { requireGiven } from "../../plugin/serve.ts";
import { ProcessStatus } from "../../protocol/supervisor-folder.ts";
import { type Layout, layoutOf } from "./layout.ts";
import { readJson } from "./secret-file.ts";

const stopWaitMs = 15_000;
const pollMs = 25;
const removeAttemptsMax = 20;

/** destroy: nothing of the install is left on this machine. */
export async function remove({ request, log }: PluginContext): Promise<void> {
  const { installsDirectory } = requireGiven(request.sandbox, "sandbox");
  const layout = layoutOf(installsDirectory, requireGiven(request.install, "install").id);
  await rename(layout.complete, layout.removed).catch(ignoreMissing);
  for (const file of await list(layout.desired))
    await rm(join(layout.desired, file), { force: true });
  const running = await waitUntilStopped(layout);
  if (running.length > 0) {
    log(`still running after ${stopWaitMs} ms, or no supervisor to stop it: ${running.join(", ")}`);
  }
  await removeFolder(layout.directory);
  log(`${layout.directory} is removed`);
}

async function waitUntilStopped(layout: Layout): Promise<string[]> {
  const deadline = performance.now() + stopWaitMs;
  for (;;) {
    const running = await namesRunning(layout);
    if (running.length === 0 || performance.now() > deadline) return running;
    await delay(pollMs);
  }
}

async function namesRunning(layout: Layout): Promise<string[]> {
  const running: string[] = [];
  for (const file of await list(layout.status)) {
    if (!file.endsWith(".json") || file.startsWith(".")) continue;
    const status = ProcessStatus.safeParse(await readJson(join(layout.status, file)));
    if (status.success && status.data.state !== "stopped") running.push(file.slice(0, -5));
  }
  return running;
}

/** The supervisor may write its last words while the folder is being removed. */
async function removeFolder(directory: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await rm(directory, { recursive: true, force: true });
    } catch (error) {
      if (errorCode(error) !== "ENOTEMPTY" || attempt >= removeAttemptsMax) throw error;
      await delay(pollMs);
    }
  }
}

async function list(directory: string): Promise<string[]> {
  return readdir(directory).catch((error: unknown) => {
    ignoreMissing(error);
    return [];
  });
}

function ignoreMissing(error: unknown): void {
  if (errorCode(error) !== "ENOENT") throw error;
}
