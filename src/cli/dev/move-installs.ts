/**
 * Tells the agents of local installs where the server is now: started with another `--port`, it has
 * another address, and an agent asks nobody but its own configuration.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { replaceFile } from "../../files/replace-file.ts";
import { lookAtInstalls } from "./install-folders.ts";
import { waitFor } from "./wait-for.ts";

const stopTimeoutMs = 20_000;

/** Writes the address into every agent's configuration that has another; running ones are stopped first. */
export async function moveInstalls(installs: string, serverUrl: string): Promise<void> {
  for (const { id, supervisor } of await lookAtInstalls(installs)) {
    const file = join(installs, id, "agent", "config.json");
    const config = await readObject(file);
    if (config === null || config.serverUrl === serverUrl) continue;
    if (supervisor) await stopSupervisor(installs, id, supervisor.pid);
    await replaceFile(file, JSON.stringify({ ...config, serverUrl }));
  }
}

async function stopSupervisor(installs: string, id: string, pid: number): Promise<void> {
  process.kill(pid, "SIGTERM");
  await waitFor(
    async () => {
      const found = (await lookAtInstalls(installs)).find((one) => one.id === id);
      return found?.supervisor ? null : true;
    },
    { timeoutMs: stopTimeoutMs },
  );
}

async function readObject(file: string): Promise<Record<string, unknown> | null> {
  try {
    const value: unknown = JSON.parse(await readFile(file, "utf8"));
    return value !== null && typeof value === "object" ? { ...value } : null;
  } catch {
    // Not provisioned yet: it will be written with the right address.
    return null;
  }
}
