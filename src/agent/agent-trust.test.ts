/**
 * What the agent believes: nothing that is not signed, meant for it, of this connection, and new. Each
 * refusal leaves everything as it was and is kept in the journal.
 */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { readProcess } from "../protocol/process-identity.ts";
import { describeAgent, exitOf, kill } from "./agent-bench.ts";
import { type GatewayDouble, until } from "./gateway-double.ts";

describeAgent("what the agent trusts", (testAgent) => {
  testAgent("the identity is readable by its owner alone, and the code is gone", async (bench) => {
    await bench.startAgent();
    await bench.gateway.next("hello");

    const { mode } = await stat(join(bench.directory, "agent", "identity.json"));
    assert.equal(mode & 0o777, 0o600);
    assert.equal(existsSync(join(bench.directory, "enrolment.json")), false);
    assert.equal(existsSync(join(bench.directory, "agent", "enrolment-key.pem")), false);
  });

  testAgent(
    "a refused code ends the agent with its own exit code and one request",
    async (bench) => {
      bench.gateway.state.enrolmentStatus = 401;
      const agent = await bench.startAgent();

      assert.equal(await exitOf(agent.child), 3);
      assert.equal(bench.gateway.enrolments.length, 1);
      assert.match(agent.output.join(""), /used already.*new code/);
      assert.doesNotMatch(agent.output.join(""), /lfe_[0-9a-f]{8}/);
    },
  );

  testAgent(
    "an agent that was killed while it enrolled comes back with the same key and code",
    async (bench) => {
      bench.gateway.state.enrolmentStatus = 503;
      const first = await bench.startAgent();
      await until(() => bench.gateway.enrolments.length > 0, "a try");
      await kill(first.child);
      bench.gateway.state.enrolmentStatus = 200;

      await bench.startAgent();
      await bench.gateway.next("hello");

      assert.equal(new Set(bench.gateway.enrolments).size, 1);
    },
  );

  testAgent("a code of another server is not traded for an identity", async (bench) => {
    const code = bench.gateway.code.replace(/\.[0-9a-f]{16}$/, ".0123456789abcdef");
    bench.gateway.state.takesAnyCode = true;
    const agent = await bench.startAgent({ code });

    assert.equal(await exitOf(agent.child), 1);
    assert.match(agent.output.join(""), /root key is 0123456789abcdef/);
    assert.equal(existsSync(join(bench.directory, "agent", "identity.json")), false);
  });

  testAgent(
    "a manifest, a grant and a cancel that the server did not sign have no effect",
    async (bench) => {
      const agent = await bench.startAgent();
      const victim = await bench.offer({ hold: true });
      await until(() => bench.gateway.eventsOf(victim).length === 3, "the first lines");

      await bench.offer({}, { manifestKey: bench.gateway.forger });
      await bench.offer({}, { grantKey: bench.gateway.forger });
      await bench.gateway.sendSigned(
        "cancel",
        { ...victim, graceSeconds: 0 },
        { key: bench.gateway.forger },
      );
      await until(() => bench.frames("refused").length === 3, "three refusals");

      assert.deepEqual(bench.codes(), ["bad_signature", "bad_signature", "bad_signature"]);
      assert(readProcess(bench.executorOf(victim)), "the victim goes on");
      assert.equal(bench.frames("accepted").length, 1);
      assert.deepEqual(await bench.journaledRefusals(agent.child), bench.codes());
    },
  );

  testAgent(
    "a frame for another agent, of another connection, or seen before has no effect",
    async (bench) => {
      await bench.startAgent();
      const job = await bench.offer({ hold: true });
      await until(() => bench.gateway.eventsOf(job).length === 3, "the first lines");
      const cancel = { ...job, graceSeconds: 0 };
      const other = `agt_${"0".repeat(24)}` as GatewayDouble["agentId"];

      await bench.gateway.sendSigned("cancel", cancel, { agentId: other });
      await bench.gateway.sendSigned("cancel", cancel, { agentNonce: "another" });
      await bench.gateway.sendSigned("cancel", cancel, { counter: 2 });
      await until(() => bench.frames("refused").length === 3, "three refusals");

      assert.deepEqual(bench.codes(), ["not_mine", "replayed", "replayed"]);
      assert(readProcess(bench.executorOf(job)));
    },
  );

  testAgent(
    "an acknowledgement or a dismissal that the server did not sign is not believed",
    async (bench) => {
      const { child } = await bench.startAgent();
      bench.gateway.state.acknowledges = false;
      const job = await bench.offer({ lines: 1 });
      await until(() => bench.gateway.outcomesOf(job).length === 1, "the outcome");

      bench.gateway.sendRaw(JSON.stringify({ type: "ack", ...job, acknowledged: 99 }));
      const { forger: key } = bench.gateway;
      await bench.gateway.sendSigned("ack", { ...job, acknowledged: 99 }, { key });
      await bench.gateway.sendSigned("superseded", { reason: "go away" }, { key });
      await until(() => bench.frames("refused").length === 3, "three refusals");

      assert.deepEqual(bench.codes(), ["invalid", "bad_signature", "bad_signature"]);
      assert.equal(child.exitCode, null, "the agent stays");
      assert(existsSync(bench.folderOf(job)), "the outcome is kept until the server has it");
    },
  );

  testAgent("the very same signed frame has an effect once", async (bench) => {
    await bench.startAgent();
    const { key, documents } = await bench.gateway.signOffer({ lines: 1 });
    await bench.gateway.next("hello");
    await until(() => bench.frames("hello").length === 1, "the hello");
    await bench.welcomed();
    const envelope = await bench.gateway.sendSigned("offer", documents);
    await until(() => bench.gateway.outcomesOf(key).length === 1, "the outcome");

    bench.gateway.sendRaw(envelope);
    await bench.gateway.next("refused");

    assert.deepEqual(bench.codes(), ["replayed"]);
    assert.equal(bench.frames("accepted").length, 1);
  });

  testAgent(
    "an epoch that was seen before starts nothing, also after the job is gone and the agent restarted",
    async (bench) => {
      const first = await bench.startAgent();
      const job = await bench.offer({ lines: 1 });
      await until(() => bench.gateway.outcomesOf(job).length === 1, "the outcome");
      await until(() => bench.hasNoFolder(), "clean up");
      await kill(first.child);
      await bench.startAgent();
      await until(() => bench.gateway.hellos.length === 2, "the second hello");

      await bench.offer({ lines: 1 }, { jobId: job.jobId });
      await bench.gateway.next("refused");
      const next = await bench.offer(
        { lines: 1 },
        { jobId: job.jobId, epoch: { generation: 1, n: 2 } },
      );
      await until(() => bench.gateway.outcomesOf(next).length === 1, "the next epoch");

      assert.deepEqual(bench.codes(), ["replayed"]);
    },
  );

  testAgent(
    "an offer for another agent, or whose grant is for another manifest, is refused",
    async (bench) => {
      await bench.startAgent();

      await bench.offer({}, { grant: { agentId: `agt_${"0".repeat(24)}` } });
      await bench.offer({}, { grant: { manifestDigest: `sha256:${"0".repeat(64)}` } });
      await bench.offer({}, { grant: { serverTime: "2020-01-01T00:00:00Z" } });
      await until(() => bench.frames("refused").length === 3, "three refusals");

      assert.deepEqual(bench.codes(), ["not_mine", "invalid", "replayed"]);
    },
  );

  testAgent(
    "a welcome that the server did not sign, or an older keyset, connects nobody",
    async (bench) => {
      bench.gateway.state.keysetNumber = 2;
      const first = await bench.startAgent();
      await bench.gateway.next("hello");
      await bench.welcomed();
      await kill(first.child);
      bench.gateway.state.keysetNumber = 1;
      const second = await bench.startAgent();
      await until(
        () => /keyset 2 or newer/.test(second.output.join("")),
        "the older keyset's refusal",
      );
      bench.gateway.state.keysetNumber = 2;
      bench.gateway.state.badWelcome = true;
      await bench.gateway.next("refused", ({ code }) => code === "bad_signature");

      assert.equal(bench.frames("renew").length, 0);
    },
  );
});
