/**
 * The whole agent as a real process, against a real WebSocket server that signs real frames, with
 * executors that are real processes. Killing is done with -9.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { readProcess } from "../protocol/process-identity.ts";
import { describeAgent, exitOf, kill, nameOf } from "./agent-bench.ts";
import { until } from "./gateway-double.ts";
import { findTree } from "./process-tree.ts";

describeAgent("the agent", (testAgent) => {
  testAgent(
    "an agent enrols, runs a job in its own process and leaves nothing of it but its outcome",
    async (bench) => {
      await bench.startAgent();
      const job = await bench.offer({ lines: 2500 });

      await bench.gateway.next("accepted");
      await until(() => bench.gateway.outcomesOf(job).length === 1, "the outcome");
      await until(() => bench.hasNoFolder(), "clean up");

      assert.deepEqual(bench.gateway.outcomesOf(job), [{ status: "succeeded" }]);
      assert.equal(bench.gateway.eventsOf(job).length, 2502);
      assert.deepEqual(findTree(nameOf(job), null), []);
    },
  );

  testAgent(
    "an agent killed with -9 finds its executor again: one outcome, every line, one process",
    async (bench) => {
      const first = await bench.startAgent();
      const job = await bench.offer({ lines: 50, hold: true });
      await until(() => bench.gateway.eventsOf(job).length === 50, "the first lines");
      const pid = bench.executorOf(job);

      await kill(first.child);
      assert(readProcess(pid), "the executor outlives the agent");
      await bench.startAgent();
      await until(() => bench.gateway.hellos.length === 2, "the second hello");
      bench.release(job);
      await until(() => bench.gateway.outcomesOf(job).length === 1, "the outcome");

      assert.deepEqual(bench.gateway.hellos[1]?.journal, [{ ...job, state: "running" }]);
      assert.equal(bench.gateway.eventsOf(job).length, 52);
      assert.equal(bench.frames("accepted").length, 1);
    },
  );

  testAgent("what ended while no agent was there is told by the next one", async (bench) => {
    const first = await bench.startAgent();
    const job = await bench.offer({ hold: true });
    await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");
    const pid = bench.executorOf(job);
    await kill(first.child);

    bench.release(job);
    await until(() => readProcess(pid) === null, "the executor's end");
    await bench.startAgent();
    await until(() => bench.gateway.outcomesOf(job).length === 1, "the outcome");

    assert.deepEqual(bench.gateway.hellos[1]?.journal, [{ ...job, state: "ended" }]);
  });

  testAgent("an agent stopped with SIGTERM exits with 0 and leaves its executor", async (bench) => {
    const { child } = await bench.startAgent();
    const job = await bench.offer({ hold: true });
    await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");
    const pid = bench.executorOf(job);

    child.kill("SIGTERM");

    assert.equal(await exitOf(child), 0);
    assert(readProcess(pid));
  });

  testAgent(
    "a killed executor is reported as lost, with its exit code, after its lines",
    async (bench) => {
      await bench.startAgent();
      const job = await bench.offer({ hold: true });
      await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");

      process.kill(bench.executorOf(job), "SIGKILL");

      const lost = await bench.gateway.next("lost");
      assert.equal(lost.jobId, job.jobId);
      assert.match(lost.reason, /exited with code 137/);
      await until(() => bench.hasNoFolder(), "clean up");
    },
  );

  testAgent(
    "an executor that crashes in the middle of a line is lost with its last words, not its torn line",
    async (bench) => {
      await bench.startAgent();
      const job = await bench.offer({ crash: true });

      const lost = await bench.gateway.next("lost");

      assert.match(lost.reason, /exited with code 9.*boom/s);
      assert.equal(bench.gateway.eventsOf(job).length, 3);
      assert.deepEqual(bench.gateway.outcomesOf(job), []);
    },
  );

  testAgent(
    "a loss that happened while no agent was there is told by the next one",
    async (bench) => {
      const first = await bench.startAgent();
      const job = await bench.offer({ hold: true });
      await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");
      const pid = bench.executorOf(job);
      await kill(first.child);

      process.kill(pid, "SIGKILL");
      await until(() => readProcess(pid) === null, "the executor's end");
      await bench.startAgent();

      assert.equal((await bench.gateway.next("lost")).jobId, job.jobId);
      assert.deepEqual(bench.gateway.hellos[1]?.journal, []);
    },
  );

  testAgent(
    "a cancelled executor that listens writes its own outcome, and only that one",
    async (bench) => {
      await bench.startAgent();
      const job = await bench.offer({ hold: true });
      await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");

      await bench.gateway.sendSigned("cancel", { ...job, graceSeconds: 10 });
      await until(() => bench.gateway.outcomesOf(job).length > 0, "the outcome");

      assert.deepEqual(bench.gateway.outcomesOf(job), [{ status: "cancelled", code: "cancelled" }]);
    },
  );

  for (const sandbox of ["auto", "none"] as const) {
    testAgent(
      `a cancel leaves no process of a tree that does not listen (sandbox: ${sandbox})`,
      async (bench) => {
        await bench.startAgent({ sandbox });
        const job = await bench.offer({ stubborn: true });
        await until(
          () => existsSync(join(bench.folderOf(job), "work", "grandchild")),
          "the grandchild",
        );

        await bench.gateway.sendSigned("cancel", { ...job, graceSeconds: 0 });
        await until(() => bench.gateway.outcomesOf(job).length > 0, "the outcome");

        assert.deepEqual(
          bench.gateway.outcomesOf(job).map(({ status, code }) => ({ status, code })),
          [{ status: "cancelled", code: "cancelled" }],
        );
        assert.deepEqual(findTree(nameOf(job), null), []);
      },
    );
  }

  testAgent(
    "a job that takes longer than its manifest allows fails as timed out",
    async (bench) => {
      await bench.startAgent();
      const job = await bench.offer({ hold: true }, { timeoutSeconds: 1 });

      await until(() => bench.gateway.outcomesOf(job).length > 0, "the outcome");

      assert.deepEqual(
        bench.gateway.outcomesOf(job).map(({ status, code }) => ({ status, code })),
        [{ status: "failed", code: "timed_out" }],
      );
    },
  );

  testAgent(
    "nothing starts on a component whose executor is alive, or without a free slot",
    async (bench) => {
      await bench.startAgent({ slots: 2 });
      const job = await bench.offer({ hold: true }, { component: "web" });
      await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");

      await bench.offer({}, { component: "web" });
      await bench.offer({}, { jobId: job.jobId, epoch: { generation: 1, n: 2 } });
      const second = await bench.offer({ hold: true });
      await until(() => bench.gateway.eventsOf(second).length === 3, "the second job");
      await bench.offer({});
      await until(() => bench.frames("refused").length === 3, "three refusals");

      assert.deepEqual(bench.codes(), ["older_epoch_alive", "older_epoch_alive", "no_slot"]);
    },
  );

  testAgent(
    "an offer repeated on a new connection, because its answer was lost, is answered again",
    async (bench) => {
      await bench.startAgent();
      await bench.welcomed();
      const { key, documents } = await bench.gateway.signOffer({ hold: true });
      await bench.gateway.sendSigned("offer", documents);
      await until(() => bench.gateway.eventsOf(key).length === 3, "the first lines");
      const pid = bench.executorOf(key);

      bench.gateway.cut();
      await until(() => bench.gateway.hellos.length === 2, "the second hello");
      await bench.welcomed();
      await bench.gateway.sendSigned("offer", documents);
      await until(() => bench.frames("accepted").length === 2, "the second answer");

      assert.equal(bench.executorOf(key), pid);
      assert.deepEqual(bench.codes(), []);
    },
  );

  testAgent("lines written while the connection was down arrive once each", async (bench) => {
    await bench.startAgent();
    bench.gateway.state.acknowledges = false;
    const job = await bench.offer({ lines: 200, hold: true });
    await until(() => bench.gateway.eventsOf(job).length > 0, "the first lines");

    bench.gateway.cut();
    bench.gateway.state.acknowledges = true;
    bench.release(job);
    await until(() => bench.gateway.outcomesOf(job).length === 1, "the outcome");

    assert.equal(bench.gateway.eventsOf(job).length, 202);
  });

  testAgent("a job that the server forgets is ended and removed", async (bench) => {
    await bench.startAgent();
    const job = await bench.offer({ stubborn: true });
    await until(
      () => existsSync(join(bench.folderOf(job), "work", "grandchild")),
      "the grandchild",
    );

    bench.gateway.state.forget.add(nameOf(job));
    bench.gateway.cut();
    await until(() => bench.hasNoFolder(), "clean up");

    assert.deepEqual(findTree(nameOf(job), null), []);
    assert.deepEqual(bench.gateway.outcomesOf(job), []);
  });

  testAgent("credentials are replaced in place while the job runs", async (bench) => {
    await bench.startAgent();
    const job = await bench.offer({ hold: true });
    await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");
    const credentials = { vendorRegistry: { url: "http://r", token: "new" }, sourceUrl: null };

    await bench.gateway.sendSigned("credentials", {
      ...job,
      credentials: { ...credentials, enrolment: null },
    });
    const file = join(bench.folderOf(job), "credentials.json");
    await until(() => readFileSync(file, "utf8").includes("new"), "the new token");

    assert.equal((await stat(file)).mode & 0o777, 0o600);
  });

  testAgent(
    "a superseded agent launches nothing more, leaves its executors and exits with its own code",
    async (bench) => {
      const { child } = await bench.startAgent();
      const job = await bench.offer({ hold: true });
      await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");
      const pid = bench.executorOf(job);

      await bench.gateway.sendSigned("superseded", { reason: "a newer one" });

      assert.equal(await exitOf(child), 4);
      assert(readProcess(pid));
    },
  );

  testAgent("a server that fell silent is left for a new connection", async (bench) => {
    bench.gateway.state.leaseSeconds = 1;
    await bench.startAgent();
    await bench.welcomed();

    await bench.gateway.next("renew");
    assert.equal(bench.gateway.hellos.length, 1, "a server that answers is not left");
    bench.gateway.state.answersRenewals = false;
    await until(() => bench.gateway.hellos.length === 2, "the second hello");
  });

  testAgent("a second agent in the same folder is refused", async (bench) => {
    await bench.startAgent();
    await bench.gateway.next("hello");
    const second = await bench.startAgent();

    assert.equal(await exitOf(second.child), 1);
    assert.match(second.output.join(""), /only agent in this folder/);
  });

  testAgent("an agent whose parent is gone ends, and its executor goes on", async (bench) => {
    const { child } = await bench.startAgent({ exitWithParent: true });
    const job = await bench.offer({ hold: true });
    await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");
    const pid = bench.executorOf(job);

    child.stdin?.end();

    assert.equal(await exitOf(child), 0);
    assert(readProcess(pid));
  });

  testAgent("an interrupted agent waits for its executors and then ends", async (bench) => {
    const { child } = await bench.startAgent();
    const job = await bench.offer({ hold: true });
    await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");

    child.kill("SIGINT");
    await bench.gateway.next("renew", ({ freeSlots }) => freeSlots === 0);
    bench.release(job);

    assert.equal(await exitOf(child), 0);
    assert.deepEqual(bench.gateway.outcomesOf(job), [{ status: "succeeded" }]);
    assert.deepEqual(findTree(nameOf(job), null), []);
  });
});
