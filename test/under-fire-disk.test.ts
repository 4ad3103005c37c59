/** Disks that are full for a while: jobs go on or are tried again, and everything arrives. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { node } from "./system.ts";

test("a full disk at the server in the middle of an apply: the job ends at the agent, and its outcome arrives when there is room", async (t) => {
  const { exitCode, output } = await playOnSmallDisk(t, "server", ["postgres", "server"], "250m");

  assert.equal(exitCode, 0, output);
  assert.match(output, /as promised/);
});

test("a full disk at the install in the middle of an apply: its job ends once, when there is room", async (t) => {
  const { exitCode, output } = await playOnSmallDisk(t, "install", ["installs"], "80m");

  assert.equal(exitCode, 0, output);
  assert.match(output, /as promised/);
});

/** The scenario in a mount namespace, in which these folders lie on a small file system. */
async function playOnSmallDisk(
  t: { after(work: () => Promise<unknown>): void },
  side: string,
  folders: readonly string[],
  size: string,
): Promise<{ exitCode: number | null; output: string }> {
  const data = await realpath(await mkdtemp(join(tmpdir(), "lf-disk-")));
  const mounts = folders.map(
    (name) => `mkdir -p disk/${name} ${name} && mount --bind disk/${name} ${name}`,
  );
  const script = [
    `mkdir -p disk && mount -t tmpfs -o size=${size},mode=700 none disk`,
    ...mounts,
    'exec "$0" "$@"',
  ].join(" && ");
  const scenario = join(import.meta.dirname, "chaos/full-disk.ts");
  const asRoot = process.getuid?.() === 0 ? [] : ["--map-root-user"];
  const child = spawn(
    "unshare",
    [...asRoot, "--mount", "sh", "-c", script, ...node, scenario, data, side],
    { cwd: data, stdio: ["ignore", "pipe", "pipe"] },
  );
  t.after(async () => {
    child.kill("SIGKILL");
    await rm(data, { recursive: true, force: true });
  });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
  await once(child, "close");
  return { exitCode: child.exitCode, output };
}
