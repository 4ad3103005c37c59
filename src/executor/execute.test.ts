/** What can go wrong with a job: each becomes one outcome, or a refusal in which nothing was done. */
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { jobFiles } from "../protocol/job-folder.ts";
import { keyIdOf } from "../protocol/signed-document.ts";
import { type Started, withTrial } from "./trial.fixture.ts";

const build = { operation: "build", install: null } as const;
const noop = (config: object) => ({
  component: { name: "c", type: "noop", config: { on: ["build"], ...config } },
});

test("a plugin that fails is a failed job with its reason, and the executor ends with 0", () =>
  withTrial(async (trial) => {
    const { outcome, exitCode, folder } = await trial.run({
      ...build,
      ...noop({ fail: "on purpose" }),
    });

    assert.deepEqual(outcome, {
      status: "failed",
      code: "operation_failed",
      message: "on purpose",
    });
    assert.equal(exitCode, 0);
    assert(!(await readdir(folder)).includes(jobFiles.work), "the scratch folder stays behind");
  }));

test("a plugin that ends without an outcome has crashed", () =>
  withTrial(async (trial) => {
    const { outcome, exitCode } = await trial.run({ ...build, ...noop({ exit_code: 7 }) });
    const unknown = await trial.run({ ...build, plugin: "no-such-plugin" });

    assert.equal(outcome.code, "plugin_crashed");
    assert.match(outcome.message ?? "", /exit code 7/);
    assert.equal(exitCode, 0);
    assert.equal(unknown.outcome.code, "plugin_crashed");
    assert.match(unknown.outcome.message ?? "", /no-such-plugin/);
  }));

test("a cancelled job ends soon, with its plugin, and says so", () =>
  withTrial(async (trial) => {
    const job = await trial.start({ ...build, ...noop({ log_lines: 1, sleep_ms: 60_000 }) });
    await firstEvent(job);

    job.child.kill("SIGTERM");
    const { outcome, exitCode } = await job.ended();

    assert.equal(outcome.status, "cancelled");
    assert.equal(exitCode, 0);
  }));

test("a job that takes longer than its manifest allows is stopped", () =>
  withTrial(async (trial) => {
    const { outcome } = await trial.run({
      ...build,
      ...noop({ sleep_ms: 60_000 }),
      timeoutSeconds: 1,
    });

    assert.equal(outcome.code, "timed_out");
  }));

test("a manifest or grant that the server did not sign is not executed", () =>
  withTrial(async (trial) => {
    const stranger = generateKeyPairSync("ed25519");
    const signer = { keyId: keyIdOf(stranger.publicKey), privateKey: stranger.privateKey };
    const forged = await trial.run({ ...build }, { signer });
    const first = await trial.start({ ...build });
    await first.ended();
    const other = await trial.start({ ...build, ...noop({ log_lines: 1, sleep_ms: 60_000 }) });
    await firstEvent(other);
    other.child.kill("SIGKILL");
    await other.ended();

    // The grant of one job beside the manifest of another.
    const mixed = await trial.start({ ...build });
    mixed.child.kill("SIGKILL");
    await mixed.ended();
    await writeFile(
      join(mixed.folder, jobFiles.grant),
      await readFile(join(first.folder, jobFiles.grant)),
    );
    const refused = await trial.startIn(mixed.folder).ended();

    assert.notEqual(forged.exitCode, 0);
    assert.deepEqual(forged.events, []);
    assert.match(forged.told, /does not verify/);
    assert.notEqual(refused.exitCode, 0);
    assert.match(refused.told, /Expected a grant for the manifest/);
  }));

test("an executor is started once in a folder: the second is refused and adds nothing", () =>
  withTrial(async (trial) => {
    const first = await trial.run({ ...build });
    const before = await readFile(join(first.folder, jobFiles.events), "utf8");

    const second = await trial.startIn(first.folder).ended();

    assert.notEqual(second.exitCode, 0);
    assert.match(second.told, /no executor has been started/);
    assert.equal(await readFile(join(first.folder, jobFiles.events), "utf8"), before);
  }));

async function firstEvent({ folder }: Started): Promise<void> {
  const deadline = performance.now() + 20_000;
  for (;;) {
    const text = await readFile(join(folder, jobFiles.events), "utf8").catch(() => "");
    if (text.includes("\n")) return;
    assert(performance.now() < deadline, "no event came");
    await delay(10);
  }
}
