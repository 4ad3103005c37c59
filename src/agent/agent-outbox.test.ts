/**
 * The outbox of a real agent with real executors: killed with -9, with the server away, with a full disk;
 * and what the agent does with an executor that gives no sign of life.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { JsonObject } from "../model/json.ts";
import { lastSeqOf } from "../protocol/events.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { type Bench, describeAgent, kill, nameOf } from "./agent-bench.ts";
import { until } from "./gateway-double.ts";
import { findTree } from "./process-tree.ts";

const realExecutor = join(import.meta.dirname, "..", "..", "bin", "executor.ts");
const silenceLimits = (silenceSeconds: number): JsonObject => ({
  limits: { startSeconds: null, finishSeconds: 60, silenceSeconds },
});
const megabyte = 1024 * 1024;

describeAgent("the agent's outbox", (testAgent) => {
  testAgent(
    "an agent killed with -9 again and again in the middle of a flood tells every line once, and one outcome",
    async (bench) => {
      bench.gateway.state.protocols = [1, 2];
      let agent = await bench.startAgent();
      const job = await bench.offer({ flood: 60_000, hold: true });
      await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");
      bench.release(job);
      for (const share of [5000, 20_000, 40_000]) {
        await patiently(() => lastOf(bench, job) > share, `more than ${share} lines`);
        await kill(agent.child);
        agent = await bench.startAgent();
      }

      await patiently(() => bench.gateway.outcomesOf(job).length > 0, "the outcome");
      await until(() => bench.hasNoFolder(), "clean up");

      assert.deepEqual(bench.gateway.outcomesOf(job), [{ status: "succeeded" }]);
      assert.equal(bench.gateway.eventsOf(job).length, 60_005);
      assert(bench.gateway.eventsOf(job).every((event, index) => event.seq === index + 1));
    },
  );

  testAgent(
    "a million lines while the server is away stay within the spool: one gap, the newest lines, the outcome",
    async (bench) => {
      bench.gateway.state.protocols = [1, 2];
      await bench.startAgent({ spoolBytesMax: 8 * megabyte });
      const job = await bench.offer({ flood: 1_000_000, hold: true });
      await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");
      bench.gateway.state.away = true;
      bench.gateway.cut();
      bench.release(job);

      // The executor is gone and nothing but its last segment is left: all is imported.
      await patiently(() => findTree(nameOf(job), null).length === 0, "the executor's end");
      await patiently(() => segmentsOf(bench.folderOf(job)) === 1, "the import");
      bench.gateway.state.away = false;
      await patiently(() => bench.gateway.outcomesOf(job).length === 1, "the outcome");

      const events = bench.gateway.eventsOf(job);
      const gaps = events.filter(({ type }) => type === "gap");
      assert.equal(lastOf(bench, job), 1_000_005);
      assert.equal(events.at(-1)?.type, "outcome");
      assert(events.length > 20_000, `${events.length} events are left`);
      assert.equal(gaps.length, 1);
      assert.match(gaps[0]?.type === "gap" ? gaps[0].reason : "", /gave way|give way/);
      const journalBytes = ["journal.db", "journal.db-wal"]
        .map((name) => statSync(join(bench.directory, "agent", name)).size)
        .reduce((sum, size) => sum + size);
      assert(journalBytes < 24 * megabyte, `${journalBytes} bytes of journal`);
    },
  );

  testAgent(
    "on a full disk an outcome still reaches the server, the agent lives, tells it once, and goes on when there is room",
    async (bench) => {
      bench.gateway.state.protocols = [1, 2];
      const { child, output } = await bench.startAgent({
        sandbox: "none",
        diskBytes: 40 * megabyte,
      });
      const inside = (path: string) => join("/proc", String(child.pid), "root", path);
      const filler = inside(join(bench.directory, "agent", "filler"));
      const release = (job: JobKey) =>
        writeFileSync(inside(join(bench.folderOf(job), "work", "release")), "");
      const job = await bench.offer({ hold: true });
      const chatty = await bench.offer({ hold: true, flood: 1000 });
      for (const each of [job, chatty]) {
        await until(() => bench.gateway.eventsOf(each).length === 3, "the first lines");
      }

      fill(filler);
      release(job);
      await until(() => bench.gateway.outcomesOf(job).length === 1, "the outcome");
      fill(`${filler}.2`);
      const refused = await bench.offer({});
      const answer = await bench.gateway.next("refused", (frame) => sameJob(frame.job, refused));
      assert.equal(child.exitCode, null);
      rmSync(filler);
      rmSync(`${filler}.2`, { force: true });
      release(chatty);
      await until(() => bench.gateway.outcomesOf(chatty).length === 1, "the other outcome");
      const later = await bench.offer({});
      await until(() => bench.gateway.outcomesOf(later).length === 1, "a later outcome");

      assert.equal(answer.code, "no_slot");
      assert.deepEqual(bench.gateway.outcomesOf(chatty), [{ status: "succeeded" }]);
      assert.equal(lastOf(bench, chatty), 1005);
      const told = output.join("").split("\n");
      assert(told.filter((line) => line.includes("the disk is full")).length <= 2, told.join("\n"));
      assert(told.some((line) => line.includes("the disk is full")));
    },
  );

  testAgent(
    "a real executor that is stopped with SIGSTOP fails as silent, and one that only has a quiet plugin goes on",
    async (bench) => {
      bench.gateway.state.protocols = [1, 2];
      await bench.startAgent({ sandbox: "none", executor: [process.execPath, realExecutor] });
      const config = { on: ["build"], log_lines: 1, sleep_ms: 120_000 };
      const job = await bench.offer(config, {
        manifest: {
          // Longer than a machine under load takes to start an executor, which is silence too.
          ...silenceLimits(6),
          operation: "build",
          install: null,
          plugin: "noop",
          component: { name: "c", type: "noop", config },
          artifact: { repository: "app/c", digest: null, sizeBytes: 0 },
        },
      });
      const heartbeat = join(bench.folderOf(job), "heartbeat");
      const beats = new Set<number>();
      await until(() => bench.gateway.eventsOf(job).length > 0, "the first line");
      await until(() => beats.add(statSync(heartbeat).mtimeMs).size > 6, "nine seconds of life");
      assert.deepEqual(bench.gateway.outcomesOf(job), []);

      process.kill(executorPid(job), "SIGSTOP");
      await patiently(() => bench.gateway.outcomesOf(job).length > 0, "the outcome");

      const [outcome, ...others] = bench.gateway.outcomesOf(job);
      assert.deepEqual([outcome?.status, outcome?.code], ["failed", "silent"]);
      assert.match(outcome?.message ?? "", /no sign of life/);
      assert.deepEqual(others, []);
      assert.deepEqual(findTree(nameOf(job), null), []);
    },
  );

  testAgent(
    "an executor that was asked because it was silent, and says cancelled, is told as silent",
    async (bench) => {
      await bench.startAgent();
      const job = await bench.offer({ hold: true }, { manifest: silenceLimits(1) });

      await until(() => bench.gateway.outcomesOf(job).length > 0, "the outcome");

      const told = bench.gateway.outcomesOf(job).map(({ status, code }) => ({ status, code }));
      assert.deepEqual(told, [{ status: "failed", code: "silent" }]);
    },
  );

  testAgent(
    "the limit to finish of a manifest of protocol 2 wins over its older one",
    async (bench) => {
      await bench.startAgent();
      const limits = { startSeconds: null, finishSeconds: 1, silenceSeconds: 60 };
      const job = await bench.offer({ hold: true }, { timeoutSeconds: 60, manifest: { limits } });

      await until(() => bench.gateway.outcomesOf(job).length > 0, "the outcome");

      const told = bench.gateway.outcomesOf(job).map(({ code }) => code);
      assert.deepEqual(told, ["timed_out"]);
    },
  );

  testAgent(
    "a restored server that recalls is told every manifest and outcome, also by an agent that was killed since",
    async (bench) => {
      bench.gateway.state.protocols = [1, 2];
      bench.gateway.state.checkpoint = { position: 7, mark: "seven" };
      const first = await bench.startAgent();
      const jobs = [await bench.offer({}), await bench.offer({ lines: 1 })];
      await until(() => jobs.every((job) => bench.gateway.outcomesOf(job).length === 1), "both");
      await until(() => bench.hasNoFolder(), "clean up");
      await kill(first.child);

      await bench.startAgent();
      await until(() => bench.gateway.hellos.length === 2, "the second hello");
      await bench.welcomed();
      await bench.gateway.sendSigned("recall", {});
      const page = await bench.gateway.next("recalled");

      const [before, after] = bench.gateway.hellos;
      assert.deepEqual([before?.checkpoint, before?.generation, before?.slots], [null, 0, 8]);
      assert.deepEqual([after?.checkpoint, after?.generation], [{ position: 7, mark: "seven" }, 1]);
      assert.equal(page.more, false);
      assert.deepEqual(
        page.jobs.map(({ manifest }) => jobIdIn(manifest)).sort(),
        jobs.map(({ jobId }) => jobId).sort(),
      );
      assert(page.jobs.every(({ outcome }) => outcome?.status === "succeeded"));
    },
  );

  testAgent("a server of protocol 1 gets a hello without what it does not know", async (bench) => {
    await bench.startAgent();
    await bench.welcomed();

    const [hello] = bench.gateway.hellos;
    assert.equal(hello?.protocol, 1);
    assert.deepEqual(
      ["checkpoint", "generation", "slots", "version"].filter((name) => name in (hello ?? {})),
      [],
    );
  });
});

function lastOf({ gateway }: Bench, job: JobKey): number {
  const last = gateway.eventsOf(job).at(-1);
  return last ? lastSeqOf(last) : 0;
}

function segmentsOf(folder: string): number {
  return readdirSync(folder).filter((name) => /^events.*ndjson$/.test(name)).length;
}

/** For what takes a machine under load longer than one wait: each wait has its own deadline. */
async function patiently(condition: () => boolean, what: string): Promise<void> {
  for (let attempt = 0; attempt < 5; attempt++) {
    try {
      return await until(condition, what);
    } catch (error) {
      if (attempt === 4) throw error;
    }
  }
}

/** Writes until nothing more fits. */
function fill(path: string): void {
  for (const size of [megabyte, 4096, 1]) {
    try {
      for (;;) writeFileSync(path, new Uint8Array(size), { flag: "a" });
    } catch (error) {
      assert(error instanceof Error && "code" in error && error.code === "ENOSPC", String(error));
    }
  }
}

function sameJob(a: JobKey | null, b: JobKey): boolean {
  return a !== null && nameOf(a) === nameOf(b);
}

function jobIdIn(manifest: string): string {
  return JSON.parse(Buffer.from(manifest.split(".")[1] ?? "", "base64url").toString()).jobId;
}

/** The executor itself: neither what isolates it nor its plugin. */
function executorPid(job: JobKey): number {
  const found = findTree(nameOf(job), null).find(({ pid }) => {
    const [program, ...args] = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    return program === process.execPath && args.includes(realExecutor);
  });
  assert(found, "a running executor");
  return found.pid;
}
