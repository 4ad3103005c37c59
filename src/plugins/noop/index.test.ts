/** `noop` keeps the contract of plugins, and does what it is told. */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { JsonObject } from "../../model/json.ts";
import { pluginCommand } from "../../plugin/plugin.fixture.ts";
import { askPlugin, testPlugin } from "../../plugin/plugin-conformance.ts";

const command = pluginCommand("noop");

testPlugin({
  command,
  type: "noop",
  config: {
    outputs: { address: "here" },
    sensitive_outputs: { key: "hidden" },
    files: { "a/b": "x" },
  },
  badConfig: { sleep_ms: "long" },
  sourceFiles: {},
  outputs: { address: { sensitive: false }, key: { sensitive: true } },
});

test("noop: fails with the message that it was given", async () => {
  const { outcome } = await apply({ fail: "on purpose" });

  assert.equal(outcome?.status, "failed");
  assert.equal(outcome.message, "on purpose");
});

test("noop: crashes without an outcome when it is told to", async () => {
  const { outcome, exitCode } = await apply({ exit_code: 7 });

  assert.equal(outcome, null);
  assert.equal(exitCode, 7);
});

test("noop: prints as many lines as it is told to", async () => {
  const { events } = await apply({ log_lines: 3 });

  const lines = events.flatMap((event) => (event.type === "log" ? [event.line] : []));
  assert.deepEqual(lines, ["line 1", "line 2", "line 3"]);
});

test("noop: writes start and end to its ledger, with job and epoch", async (t) => {
  const ledger = await ledgerOf(t);

  await apply({ ledger });

  const { pid, monotonicMs, ...rest } = (await entriesOf(ledger))[0] ?? {};
  assert(Number(pid) > 0 && Number(monotonicMs) > 0);
  assert.deepEqual(rest, {
    phase: "start",
    operation: "apply",
    component: "c",
    install: null,
    job: `job_${"0".repeat(24)}`,
    epoch: "1.1",
  });
  assert.deepEqual(await phasesOf(ledger), ["start", "end"]);
});

test("noop: its ledger tells of two that are alive at once, and of none that follow each other", async (t) => {
  const [both, oneByOne] = [await ledgerOf(t), await ledgerOf(t)];

  await Promise.all([1, 2].map(() => apply({ ledger: both, sleep_ms: 1000 })));
  await apply({ ledger: oneByOne });
  await apply({ ledger: oneByOne });

  assert.deepEqual((await phasesOf(both)).slice(0, 3), ["start", "overlap", "start"]);
  assert.deepEqual(await phasesOf(oneByOne), ["start", "end", "start", "end"]);
});

async function ledgerOf(t: { after(fn: () => Promise<unknown>): void }): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "landfall-noop-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return join(folder, "ledger");
}

async function entriesOf(ledger: string): Promise<Record<string, unknown>[]> {
  const lines = (await readFile(ledger, "utf8")).trim().split("\n");
  return lines.map((line) => JSON.parse(line));
}

async function phasesOf(ledger: string): Promise<unknown[]> {
  return (await entriesOf(ledger)).map(({ phase }) => phase);
}

function apply(config: JsonObject) {
  return askPlugin(command, {
    version: 1,
    operation: "apply",
    job: { id: `job_${"0".repeat(24)}`, epoch: { generation: 1, n: 1 } },
    install: null,
    component: { name: "c", type: "noop", config },
    sourceDirectory: null,
    outputDirectory: null,
    artifactDirectory: null,
    artifactDigest: null,
    state: null,
    plan: null,
    workDirectory: "/tmp",
    supervisorDirectory: null,
    stateBackend: null,
    sandbox: null,
  });
}
