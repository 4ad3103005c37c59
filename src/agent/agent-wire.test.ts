/**
 * The agent's side of the wire as a real process: through proxies and private authorities, over
 * connections that die without a word, with credits, and as one that was replaced.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { readProcess } from "../protocol/process-identity.ts";
import { describeAgent, exitOf, kill, nameOf } from "./agent-bench.ts";
import { until } from "./gateway-double.ts";
import { findTree, readStat, signal } from "./process-tree.ts";

const fixtures = join(import.meta.dirname, "..", "..", "test", "fixtures", "agent-tls");
const caFile = join(fixtures, "ca.pem");
const tls = {
  key: readFileSync(join(fixtures, "server-key.pem"), "utf8"),
  cert: readFileSync(join(fixtures, "server.pem"), "utf8"),
};

describeAgent("the agent's wire", (testAgent) => {
  testAgent(
    "an agent enrols and works through a CONNECT proxy with a password and a private authority",
    async (bench) => {
      const authorization = `Basic ${Buffer.from("ann:hunter2").toString("base64")}`;
      const proxy = await bench.startProxy({ authorization });
      const agent = await bench.startAgent({
        serverUrl: "https://server.landfall.test",
        proxy: `http://ann:hunter2@127.0.0.1:${proxy.port}`,
        caFile,
      });
      const job = await bench.offer({ lines: 10 });
      await until(() => bench.gateway.outcomesOf(job).length === 1, "the outcome");

      assert.deepEqual(new Set(proxy.asked), new Set(["server.landfall.test:443"]));
      assert(proxy.asked.length >= 2, "enrolment and connection");
      assert.doesNotMatch(agent.output.join(""), /hunter2|ann:/);
    },
    { tls },
  );

  testAgent(
    "the environment's proxy is taken, and what keeps the agent away is said clearly",
    async (bench) => {
      const proxy = await bench.startProxy();
      const agent = await bench.startAgent({
        serverUrl: "https://server.landfall.test",
        variables: { HTTPS_PROXY: proxy.url },
      });
      const says = (pattern: RegExp) =>
        until(() => pattern.test(agent.output.join("")), String(pattern));

      await says(/not trusted here .*`caFile`/);
      proxy.state.status = 403;
      await says(/tunnel to server\.landfall\.test:443, got HTTP 403/);
    },
    { tls },
  );

  testAgent("a proxy that strips `Upgrade` is called by its name", async (bench) => {
    const proxy = await bench.startProxy();
    const agent = await bench.startAgent({ serverUrl: proxy.url });
    const expected = /Expected a WebSocket at ws:\/\/127\.0\.0\.1:\d+, got HTTP 404.*`Upgrade`/;
    await until(() => expected.test(agent.output.join("")), "the reason");

    assert.equal(bench.gateway.enrolments.length, 1, "ordinary requests pass");
  });

  testAgent(
    "heartbeats keep a connection through a proxy that cuts idle ones, in either direction",
    async (bench) => {
      bench.gateway.state.leaseSeconds = 3;
      const proxy = await bench.startProxy({ idleCutMs: 3000 });
      await bench.startAgent({ proxy: proxy.url });
      await until(() => bench.frames("renew").length >= 7, "seven heartbeats");

      assert.equal(bench.gateway.hellos.length, 1);
    },
  );

  testAgent(
    "a connection whose other end is gone without a word is left within seconds",
    async (bench) => {
      const proxy = await bench.startProxy();
      const agent = await bench.startAgent({ proxy: proxy.url });
      await until(() => /"connected"/.test(agent.output.join("")), "the welcome is heard");

      proxy.state.isSwallowing = true;
      const startedMs = performance.now();
      await until(() => /fell silent/.test(agent.output.join("")), "the end", 40_000);
      const silentMs = performance.now() - startedMs;
      proxy.state.isSwallowing = false;
      await until(() => bench.gateway.hellos.length === 2, "the second hello");

      // Ten seconds to the tick is shown in `line-watch.test.ts`; on a busy machine a tick may take longer.
      assert(silentMs > 5000, `${Math.round(silentMs)} ms`);
    },
  );

  testAgent(
    "events without an acknowledgement stay within the server's credit while leases are renewed",
    async (bench) => {
      const { state, frames } = bench.gateway;
      const creditBytes = 1000;
      Object.assign(state, {
        protocols: [1, 2],
        creditBytes,
        acknowledges: false,
        leaseSeconds: 1,
      });
      await bench.startAgent();
      // Three at once: the credit is one for all of them.
      const floods = await Promise.all([1, 2, 3].map(() => bench.offer({ lines: 2000 })));
      await until(() => floods.some((job) => bench.gateway.eventsOf(job).length > 0), "lines");
      await until(() => bench.frames("accepted").length === 3, "all three");
      const renewals = bench.frames("renew").length;
      await until(() => bench.frames("renew").length >= renewals + 3, "three heartbeats");

      const sizes = frames.flatMap((frame) =>
        frame.type === "events" ? [Buffer.byteLength(JSON.stringify(frame))] : [],
      );
      const bytes = sizes.reduce((sum, size) => sum + size, 0);
      assert(
        sizes.length === 1 || bytes <= creditBytes,
        `${bytes} bytes in ${sizes.length} frames`,
      );
      state.acknowledges = true;
      for (const job of floods) await bench.gateway.ack(job, bench.gateway.eventsOf(job).length);
      for (const job of floods) {
        await until(() => bench.gateway.outcomesOf(job).length === 1, "the outcome");
        assert.equal(bench.gateway.eventsOf(job).length, 2002);
      }
    },
  );

  testAgent(
    "the highest common version is spoken, and a server of version 1 hears nothing of version 2",
    async (bench) => {
      const { state, hellos } = bench.gateway;
      const agent = await bench.startAgent({ slots: 3 });
      await bench.welcomed();
      state.protocols = [9, 2, 1];
      bench.gateway.cut();
      await until(() => hellos.length === 2, "the second hello");
      state.protocols = [9];
      bench.gateway.cut();
      const refusal = /protocol 1 or 2, got one that speaks 9\. Upgrade the agent/;
      await until(() => refusal.test(agent.output.join("")), "the reason");

      const [first, second] = hellos;
      assert(first && second);
      assert.equal(first.protocol, 1);
      const basic = ["agentId", "agentNonce", "freeSlots", "journal", "protocol", "signature"];
      assert.deepEqual(Object.keys(first).sort(), [...basic, "type"]);
      assert.equal(second.protocol, 2);
      assert.equal(second.slots, 3);
    },
  );

  testAgent("a server without room is left alone for as long as it asked", async (bench) => {
    bench.gateway.state.upgradeAnswer =
      "HTTP/1.1 503 Service Unavailable\r\nretry-after: 100\r\ncontent-length: 0\r\n\r\n";
    const agent = await bench.startAgent();
    const waits = () =>
      [...agent.output.join("").matchAll(/HTTP 503.*"waitMs":(\d+)/g)].map(([, ms]) => Number(ms));
    await until(() => waits().some((ms) => ms > 1000), "a long wait");

    assert(waits().length <= 2, `${waits().length} waits, not a ladder from 250 ms up`);
    assert(Math.max(...waits()) <= 200_000);
  });

  testAgent(
    "a replaced agent takes a new identity for the code that it is given, and keeps its executors",
    async (bench) => {
      const agent = await bench.startAgent();
      const job = await bench.offer({ hold: true });
      await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");
      const pid = bench.executorOf(job);
      const oldId = bench.gateway.agentId;
      const identityFile = join(bench.directory, "agent", "identity.json");
      const oldIdentity = JSON.parse(readFileSync(identityFile, "utf8"));

      bench.gateway.replaceAgent();
      await until(() => /refuses this agent/.test(agent.output.join("")), "the refusal");
      const enrolmentFile = join(bench.directory, "enrolment.json");
      writeFileSync(enrolmentFile, JSON.stringify({ code: bench.gateway.code }));
      await until(() => bench.gateway.isWelcomed(), "the new agent's connection");

      assert(readProcess(pid), "the executor goes on");
      const hello = bench.gateway.hellos.at(-1);
      assert.notEqual(hello?.agentId, oldId);
      assert.deepEqual(hello?.journal, [{ ...job, state: "running" }]);
      const identity = JSON.parse(readFileSync(identityFile, "utf8"));
      assert.equal(identity.agentId, bench.gateway.agentId);
      assert.notEqual(identity.privateKey, oldIdentity.privateKey, "with a key of its own");
      assert.equal(statSync(identityFile).mode & 0o777, 0o600);
      assert(
        !existsSync(enrolmentFile) &&
          !existsSync(join(bench.directory, "agent", "enrolment-key.pem")),
      );
      bench.release(job);
      await until(() => bench.gateway.outcomesOf(job).length === 1, "the outcome");
    },
  );

  testAgent(
    "an agent that is started with a new code enrols anew, and with a used one stays who it is",
    async (bench) => {
      const first = await bench.startAgent();
      await bench.welcomed();
      const { agentId: oldId, code: oldCode } = bench.gateway;
      await kill(first.child);
      const second = await bench.startAgent({ code: oldCode.replace("lfe_", "lfe_wrong") });
      await until(() => bench.gateway.hellos.length === 2, "the second hello");
      await kill(second.child);
      assert.match(second.output.join(""), /stays who it is/);

      bench.gateway.replaceAgent();
      await bench.startAgent({ code: bench.gateway.code });
      await until(() => bench.gateway.isWelcomed(), "the new agent's connection");

      const ids = bench.gateway.hellos.map(({ agentId }) => agentId);
      assert.deepEqual(ids, [oldId, oldId, bench.gateway.agentId]);
    },
  );

  testAgent(
    "an agent that was superseded and is started again does not connect within a minute",
    async (bench) => {
      const first = await bench.startAgent();
      await bench.welcomed();
      await bench.gateway.sendSigned("superseded", { reason: "a newer one" });
      assert.equal(await exitOf(first.child), 4);

      const second = await bench.startAgent();
      const waiting = /waiting before it connects","restMs":(\d+)/;
      await until(() => waiting.test(second.output.join("")), "the wait");
      const restMs = Number(second.output.join("").match(waiting)?.[1]);
      await sleep(1500); // an agent that does not wait connects within a quarter of a second

      assert(restMs > 45_000 && restMs <= 120_000, `${restMs} ms`);
      assert.equal(bench.gateway.hellos.length, 1);
      second.child.kill("SIGTERM");
      assert.equal(await exitOf(second.child), 0);
    },
  );

  testAgent(
    "a new epoch starts only once a stopped executor that another agent left behind is gone",
    async (bench) => {
      const first = await bench.startAgent();
      const old = await bench.offer({ hold: true }, { component: "api" });
      const bystander = await bench.offer({ hold: true }, { component: "web" });
      await until(() => bench.gateway.eventsOf(old).length === 3, "the first lines");
      await until(() => bench.gateway.eventsOf(bystander).length === 3, "the neighbour's lines");
      const tree = findTree(nameOf(old), null);
      for (const { pid } of tree) signal(pid, "SIGSTOP");
      await kill(first.child);

      // Another folder: nothing but the machine itself knows of the old executor.
      bench.gateway.replaceAgent();
      const second = await bench.startAgent({ folder: "agent2", code: bench.gateway.code });
      await bench.welcomed();
      const epoch = { generation: 2, n: 1 };
      const next = await bench.gateway.offer(
        { lines: 1 },
        { jobId: old.jobId, epoch, component: "api" },
      );
      let overlaps = false;
      await until(() => {
        const alive = findTree(nameOf(old), null).some(({ pid }) => readStat(pid) !== null);
        overlaps ||= alive && findTree(nameOf(next), null).length > 0;
        return bench.gateway.outcomesOf(next).length === 1;
      }, "the new epoch's outcome");

      assert.equal(overlaps, false, "never two executors of one component");
      assert.deepEqual(findTree(nameOf(old), null), []);
      assert.match(second.output.join(""), new RegExp(`ended older executors.*${nameOf(old)}`));
      assert(findTree(nameOf(bystander), null).length > 0, "another component goes on");
    },
  );
});
