/** Whatever a plugin does, one result comes of it, and nothing of it is left. */
import assert from "node:assert/strict";
import { tmpdir } from "node:os";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import type { PluginRequest } from "../protocol/plugin-request.ts";
import { readProcess } from "../protocol/process-identity.ts";
import { runPlugin } from "./plugin-process.ts";
import { createRedactor } from "./redaction.ts";

const succeeded = `echo '{"type":"outcome","status":"succeeded"}'`;

test("what is no event becomes a marked log line, and the rest counts", async () => {
  const { lines, result } = await run(
    `echo hello; echo '{"type":"dance"}'; echo warn >&2; ${succeeded}; echo late`,
  );

  assert.equal(result.outcome.status, "succeeded");
  assert.deepEqual(lines.sort(), [
    "[after the outcome] late",
    "[not an event] hello",
    '[not an event] {"type":"dance"}',
    "warn",
  ]);
});

test("of two outcomes the first counts", async () => {
  const { result } = await run(
    `echo '{"type":"outcome","status":"failed","message":"first"}'; ${succeeded}`,
  );

  assert.equal(result.outcome.message, "first");
});

test("a crash is told with the exit code and the last lines", async () => {
  const { result } = await run("echo segmentation fault >&2; exit 139");

  assert.equal(result.outcome.code, "plugin_crashed");
  assert.match(result.outcome.message ?? "", /139[\s\S]*segmentation fault/);
});

test("what a plugin leaves running ends with it", async () => {
  const { lines, result } = await run(`sleep 300 & echo $! >&2; ${succeeded}`);

  assert.equal(result.outcome.status, "succeeded");
  const deadline = performance.now() + 5000;
  while (readProcess(Number(lines[0])) !== null) {
    assert(performance.now() < deadline, `${lines[0]} is still alive`);
    await delay(5);
  }
});

test("a plugin that does not end when it is asked to is killed", async () => {
  const { result } = await run(
    'trap "" TERM; while :; do sleep 0.1; done',
    AbortSignal.timeout(300),
  );

  assert.equal(result.outcome.code, "plugin_crashed");
  assert.match(result.outcome.message ?? "", /SIGKILL/);
});

test("a sensitive output is hidden in everything that comes after it", async () => {
  const output = `echo '{"type":"output","name":"key","value":"hunter22","sensitive":true}'`;
  const { redacted } = await run(
    `${output}; echo '{"type":"log","line":"got hunter22"}'; ${succeeded}`,
  );

  assert.deepEqual(redacted, ["got ***"]);
});

test("a program that cannot be started is a crash too", async () => {
  const { result } = await run("", new AbortController().signal, ["/no/such/program"]);

  assert.equal(result.outcome.code, "plugin_crashed");
});

async function run(
  script: string,
  signal = new AbortController().signal,
  command = ["/bin/sh", "-c", script],
) {
  const lines: string[] = [];
  const redacted: string[] = [];
  const redactor = createRedactor();
  const log = {
    log: (_: string, line: string) => {
      lines.push(line);
      redacted.push(redactor.redact(line));
    },
    reportProgress() {},
    async finish() {},
  };
  const result = await runPlugin({
    command,
    environment: { PATH: "/usr/bin:/bin" },
    request: { workDirectory: tmpdir() } as PluginRequest,
    log,
    redactor,
    signal,
    killGraceMs: 300,
  });
  return { lines, redacted, result };
}
