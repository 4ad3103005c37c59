/** `job` keeps the contract of plugins; its program gets what it is promised. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { JsonObject } from "../../model/json.ts";
import { pluginCommand } from "../../plugin/plugin.fixture.ts";
import { askPlugin, testPlugin } from "../../plugin/plugin-conformance.ts";
import { parseOutputs } from "./outputs-file.ts";

const command = pluginCommand("job");

testPlugin({
  command,
  type: "job",
  config: {
    command: ["sh", "migrate.sh"],
    env_vars: { GREETING: "hello" },
    outputs: { version: { sensitive: false }, password: { sensitive: true } },
  },
  badConfig: { command: [] },
  sourceFiles: {
    "migrate.sh":
      'echo "$GREETING" > "$LANDFALL_STATE_DIR/ran" && touch beside && echo version=1 >> "$LANDFALL_OUTPUTS" && echo \'{"password":"x y"}\' >> "$LANDFALL_OUTPUTS"',
  },
  outputs: { version: { sensitive: false }, password: { sensitive: true } },
  withPlace: async (use) => {
    const supervisorDirectory = await mkdtemp(join(tmpdir(), "landfall-job-place-"));
    try {
      await use({ supervisorDirectory, stateBackend: null });
    } finally {
      await rm(supervisorDirectory, { recursive: true, force: true });
    }
  },
});

test("job: what it prints is its log, and a failing program fails the job", async () => {
  const { events, outcome } = await apply({ command: "echo out; echo err >&2; exit 3" });

  const lines = events.flatMap((event) => (event.type === "log" ? [event.line] : []));
  assert.deepEqual(lines.sort(), ["err", "out"]);
  assert.match(outcome?.message ?? "", /got 3/);
});

test("job: a program that takes too long is killed", async () => {
  const { outcome } = await apply({ command: ["sleep", "60"], timeout: "50ms" });

  assert.equal(outcome?.code, "timed_out");
});

test("job: a declared output that is missing is said", async () => {
  const { outcome } = await apply({ command: "true", outputs: { url: { sensitive: false } } });

  assert.match(outcome?.message ?? "", /`url`/);
});

test("job: an output that nobody declared counts as sensitive", async () => {
  const { events } = await apply({ command: 'echo surprise=1 >> "$LANDFALL_OUTPUTS"' });

  const [output] = events.filter((event) => event.type === "output");
  assert.equal(output?.sensitive, true);
});

test("job: a program that is not there is a missing tool", async () => {
  const { outcome } = await apply({ command: ["no-such-program-here"] });

  assert.equal(outcome?.code, "missing_tool");
});

test("job: outputs are merged line by line, and anything else is refused", () => {
  assert.deepEqual(parseOutputs('a=1\n{"b":{"c":2}}\na=3=4\n'), { a: "3=4", b: { c: 2 } });
  assert.deepEqual(parseOutputs('{\n "a": 1\n}\n'), { a: 1 });
  assert.deepEqual(parseOutputs(""), {});
  assert.throws(() => parseOutputs("a=1\nhunter2"), /line 2/);
  assert.throws(
    () => parseOutputs("a=1\nhunter2"),
    (error: Error) => !error.message.includes("hunter2"),
  );
});

async function apply(config: JsonObject) {
  const workDirectory = await mkdtemp(join(tmpdir(), "landfall-job-"));
  try {
    const answer = await askPlugin(command, {
      version: 1,
      operation: "apply",
      job: { id: `job_${"0".repeat(24)}`, epoch: { generation: 1, n: 1 } },
      install: null,
      component: { name: "c", type: "job", config },
      sourceDirectory: null,
      outputDirectory: null,
      artifactDirectory: null,
      artifactDigest: null,
      state: null,
      plan: null,
      workDirectory,
      supervisorDirectory: null,
      stateBackend: null,
      sandbox: null,
    });
    assert((await readdir(workDirectory)).includes("run"));
    return answer;
  } finally {
    await rm(workDirectory, { recursive: true, force: true });
  }
}
