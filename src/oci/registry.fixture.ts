/** Registries for tests: in this process or in their own, on loopback, in folders that are removed. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Authorize } from "./authorize.ts";
import { createRegistry } from "./registry.ts";
import type { RegistryRecord } from "./registry-exchange.ts";
import { listen } from "./registry-listen.ts";
import type { UploadLimits } from "./upload-session.ts";

export const program = fileURLToPath(new URL("../../bin/registry.ts", import.meta.url));

const everybody: Authorize = async () => null;

/** Runs with a new folder, and removes it. */
export async function withFolder<T>(use: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "landfall-oci-"));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

export interface TestRegistry {
  readonly url: string;
  readonly directory: string;
  readonly records: RegistryRecord[];
}

/** Runs with a registry in this process. */
export async function withRegistry<T>(
  use: (registry: TestRegistry) => Promise<T>,
  options: { authorize?: Authorize; limits?: Partial<UploadLimits> } = {},
): Promise<T> {
  return withFolder(async (directory) => {
    const records: RegistryRecord[] = [];
    const registry = await createRegistry({
      directory,
      authorize: options.authorize ?? everybody,
      log: (record) => records.push(record),
      now: () => new Date(),
      random: randomBytes,
      ...(options.limits ? { limits: options.limits } : {}),
    });
    const { url } = await listen(registry.server, { host: "127.0.0.1", port: 0 });
    try {
      return await use({ url, directory, records });
    } finally {
      await registry.close(0);
    }
  });
}

/** Starts the registry program; ends it with the test. */
export async function withProgram<T>(
  config: object,
  use: (run: { child: ChildProcess; url: string; output: () => string }) => Promise<T>,
  command: readonly string[] = [process.execPath, program],
): Promise<T> {
  return withFolder(async (folder) => {
    const portFile = join(folder, "port.json");
    const configFile = join(folder, "config.json");
    await writeFile(configFile, JSON.stringify({ portFile, ...config }));
    const [file = "", ...args] = command;
    const child = spawn(file, [...args, "--config", configFile], {
      stdio: ["pipe", "pipe", "pipe"],
    });
    let output = "";
    child.stdout.on("data", (text) => {
      output += text;
    });
    child.stderr.on("data", (text) => {
      output += text;
    });
    const exited = once(child, "exit");
    try {
      const { url } = await eventually(async () => {
        assert.equal(child.exitCode, null, `the registry exited: ${output}`);
        return JSON.parse(await readFile(portFile, "utf8")) as { url: string };
      });
      return await use({ child, url, output: () => output });
    } finally {
      child.kill("SIGKILL");
      await exited;
    }
  });
}

/** Tries until it does not throw, with a deadline. */
export async function eventually<T>(attempt: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + 30_000;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await delay(20);
    }
  }
}
