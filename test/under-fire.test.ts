/**
 * A few rounds of `npm run chaos`: the whole product, five installs, programs killed with -9 and
 * connections broken at seeded random points; after each, everything that must hold does.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { node } from "./system.ts";

test("server, agent, executor and PostgreSQL killed with -9 at seeded points over five installs: every job ends once, nothing is lost, doubled or left behind", async (t) => {
  const kinds = "kill-server,kill-postgres,kill-agent,kill-executor,kill-tree";
  const { exitCode, output } = await runChaos(
    t,
    "--rounds=1 --seed=killed --jobs=30 --faults=10".split(" "),
    `--only=${kinds}`,
  );

  assert.equal(exitCode, 0, output);
  assert.match(output, /round 1: ok, .* faults: .*kill-/);
});

test("every kind of fault at seeded points over five installs: every job ends once, nothing is lost, doubled or left behind", async (t) => {
  const { exitCode, output } = await runChaos(
    t,
    "--rounds=1 --seed=mixed --jobs=20 --faults=10".split(" "),
  );

  assert.equal(exitCode, 0, output);
  assert.match(output, /round 1: ok/);
});

test("when something breaks, chaos prints the seed and the round's timeline, keeps the data and fails", async (t) => {
  const { exitCode, output } = await runChaos(
    t,
    "--rounds=3 --seed=forged --jobs=10 --faults=1 --only=tamper".split(" "),
  );

  assert.equal(exitCode, 1, output);
  assert.match(output, /BROKEN: two of one component alive at once/);
  assert.match(output, /FAULT tamper/);
  assert.match(output, /job\.succeeded north/);
  const data = /^seed forged; the data is in (\S+)$/m.exec(output)?.[1];
  assert(data, output);
  await rm(data, { recursive: true });
  assert.doesNotMatch(output, /round 2/);
});

async function runChaos(
  t: { after(work: () => void): void },
  args: readonly string[],
  ...more: readonly string[]
): Promise<{ exitCode: number | null; output: string }> {
  const program = join(import.meta.dirname, "chaos/run.ts");
  const child = spawn(node[0], [node[1], program, ...args, ...more], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  t.after(() => void child.kill("SIGTERM"));
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
  await once(child, "close");
  return { exitCode: child.exitCode, output };
}
