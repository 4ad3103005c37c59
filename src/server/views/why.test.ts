/** Why, from rows in a real PostgreSQL: the facts are read as they are, by indexes. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  createActiveInstall,
  insertDeployed,
  insertJob,
  type ListeningServer,
  releaseApp,
  startHttp,
  syncNoopApp,
} from "../../../test/http-server.ts";
import { createId } from "../../model/ids.ts";
import type { Why } from "../../model/why.ts";
import { WhyAnswer } from "../../protocol/api.ts";
import { recordEvent } from "../event-queue.ts";
import { drainAgent, pauseInstall, replaceAgent, setJobsMax } from "../holds.ts";
import { createInstall } from "../installs.ts";
import { cancelJob } from "../jobs.ts";
import { explainInstall, explainJob } from "../views.ts";

let server: ListeningServer;
before(async () => {
  server = await startHttp();
  await syncNoopApp(server, "app", { a: [], b: ["a"], c: ["b"] });
  await releaseApp(server, "app");
});
after(() => server.close());

test("a queued job tells of a pause, a missing agent, one that is away and one that drains, as they come to be", async () => {
  const id = await createActiveInstall(server, "app", "holds", noNeeds);
  const jobId = await insertJob(server, id, { component: "a", operation: "sync", state: "queued" });
  const missing = await explainJob(server.context, jobId);
  const agent = await insertAgent(id, { connected: false });
  const away = await explainJob(server.context, jobId);
  await server.database.query(
    "update agents set connection = 'c', connected_at = now() where id = $1",
    [agent],
  );
  const next = await explainJob(server.context, jobId);
  await drainAgent(server.context, "server", agent, "new disk");
  await pauseInstall(server.context, `token:${server.tokenId}`, "holds", "audit week");

  const held = await explainJob(server.context, jobId);

  assert.deepEqual(waits(missing), ["agent_missing"]);
  assert.deepEqual(waits(away), ["agent_offline"]);
  assert.match(away.summary, /away since 2030-01-01 00:00:00 UTC/);
  assert.deepEqual(waits(next), ["turn"]);
  assert.deepEqual(waits(held), ["pause", "agent_draining"]);
  assert.match(held.summary, /holds was paused by test .*: audit week\./);
  assert.deepEqual(WhyAnswer.parse(held), held);
});

test("a full agent, an install's limit and the place in the queue are counted", async () => {
  const id = await createActiveInstall(server, "app", "busy", noNeeds);
  const agent = await insertAgent(id, { slots: 1 });
  const running = await insertJob(server, id, {
    component: "a",
    operation: "sync",
    state: "running",
  });
  await server.database.query("update jobs set agent_id = $2 where id = $1", [running, agent]);
  await insertJob(server, id, { component: "b", operation: "sync", state: "queued" });
  const last = await insertJob(server, id, { component: "c", operation: "sync", state: "queued" });
  await setJobsMax(server.context, "server", "busy", 1);

  const why = await explainJob(server.context, last);

  assert.deepEqual(waits(why), ["agent_full", "install_limit", "turn"]);
  assert.deepEqual(
    why.because.map(({ because }) => because.map(({ subject }) => subject.id)),
    [[running], [running], []],
  );
  assert.match(why.because[2]?.summary ?? "", /^1 job is before it .* first sync of b in busy/);
});

test("a job that stands behind jobs of paused installs is told only of those that can go before it", async () => {
  await server.database.query(
    "insert into agents (id, role, public_key, connection, connected_at) values ($1, 'build', $1, 'c', now())",
    [createId("agt", new Date(), server.context.random)],
  );
  const make = async (name: string) => {
    const id = await createInstall(server.context, "server", { app: "app", name, inputs: {} });
    const job = await insertJob(server, id, {
      component: null,
      operation: "provision",
      state: "queued",
    });
    await server.database.query("update jobs set queue = 'build' where id = $1", [job]);
    return job;
  };
  await make("first");
  const second = await make("second");
  await pauseInstall(server.context, "server", "first", "later");

  assert.match(
    (await explainJob(server.context, second)).summary,
    /It is next in the queue of the build agents/,
  );
});

test("an older executor that is alive, a backoff and a replaced agent are told", async () => {
  const id = await createActiveInstall(server, "app", "fenced", noNeeds);
  const agent = await insertAgent(id, {});
  const jobId = await insertJob(server, id, {
    component: "a",
    operation: "apply",
    state: "queued",
  });
  await server.database.query(
    "update jobs set not_before = now() + interval '1 hour', returned_reason = 'It broke.', losses = 1 where id = $1",
    [jobId],
  );
  const backoff = await explainJob(server.context, jobId);
  await recordEvent(server.database, {
    kind: "agent.refusal",
    actor: `agent:${agent}`,
    jobId,
    data: { code: "older_epoch_alive" },
  });
  await recordEvent(server.database, { kind: "job.queued", actor: "server", jobId });
  const fenced = await explainJob(server.context, jobId);
  await server.database.query(
    "update jobs set state = 'unreachable', agent_id = $2, lease_expires_at = now() where id = $1",
    [jobId, agent],
  );
  await replaceAgent(server.context, "server", "fenced");

  const replaced = await explainJob(server.context, jobId);

  assert.deepEqual(waits(backoff), ["backoff"]);
  assert.match(backoff.because[0]?.summary ?? "", /\(2 of 3\).*It broke\./);
  assert.deepEqual(waits(fenced), ["older_executor"]);
  assert.deepEqual(waits(replaced), ["agent_replaced"]);
  assert.match(replaced.unblock.join(" "), /landfall agents replace fenced/);
});

test("a job that is asked to stop says who asked, by the name of the token", async () => {
  const id = await createActiveInstall(server, "app", "stopped", noNeeds);
  const jobId = await insertJob(server, id, {
    component: "a",
    operation: "plan",
    state: "running",
  });
  await cancelJob(server.context, `token:${server.tokenId}`, jobId);

  const why = await explainJob(server.context, jobId);

  assert.match(
    why.because.find(({ wait }) => wait === "cancel")?.summary ?? "",
    /^test asked it to stop/,
  );
});

test("a component tells the chain down to the job, and what failed first; a deploy does too", async () => {
  const id = await createActiveInstall(server, "app", "broken", noNeeds);
  await insertAgent(id, {});
  const job = { component: "a", operation: "apply", state: "failed", message: "No such table." };
  const failed = await insertJob(server, id, job);

  const component = await explain("broken", { kind: "component", name: "c" });
  const deploy = await explain("broken", { kind: "deploy", number: null });
  const install = await explain("broken", { kind: "install" });

  assert.deepEqual(chain(component), ["dependency broken/b", "dependency broken/a"]);
  for (const why of [component, deploy, install]) {
    assert.deepEqual(
      [why.firstCause?.jobId, why.firstCause?.code, why.firstCause?.message],
      [failed, "operation_failed", "No such table."],
    );
    assert.match(why.unblock.join(" "), /landfall deploy broken/);
  }
  assert.deepEqual([deploy.state, install.state], ["failed", "failed"]);
  await assert.rejects(explain("broken", { kind: "component", name: "x" }), {
    message: /`a`, `b`, `c`/,
  });
  await assert.rejects(explain("broken", { kind: "deploy", number: 9 }), { code: "not_found" });
});

test("an install is told as done, without a release, provisioning, and under way", async () => {
  const calm = await createActiveInstall(server, "app", "calm", noNeeds);
  await insertAgent(calm, {});
  for (const name of ["a", "b", "c"]) await insertDeployed(server, calm, name);
  await syncNoopApp(server, "unbuilt", { only: [] });
  await createInstall(server.context, "server", { app: "unbuilt", name: "early", inputs: {} });
  const working = await createActiveInstall(server, "app", "working", noNeeds);
  await insertDeployed(server, working, "a");
  const queued = await insertJob(server, working, {
    component: "b",
    operation: "plan",
    state: "queued",
  });

  const done = await explain("calm", { kind: "install" });
  const early = await explain("early", { kind: "install" });
  const component = await explain("early", { kind: "component", name: "only" });
  const underWay = await explain("working", { kind: "deploy", number: 1 });

  assert.deepEqual([done.state, done.because], ["active", []]);
  assert.deepEqual(
    [early.state, ...waits(early)],
    ["provisioning", "sandbox", "release", "dependency"],
  );
  assert.deepEqual(waits(component), ["build"]);
  assert.equal(underWay.state, "under_way");
  assert.deepEqual(chain(underWay), [
    "dependency working/b",
    `job ${queued}`,
    "agent_missing working",
  ]);
});

test("the facts are read by indexes, however many jobs and agents there are", async () => {
  const id = await createActiveInstall(server, "app", "large", noNeeds);
  await insertAgent(id, {});
  const jobId = await insertJob(server, id, { component: "a", operation: "sync", state: "queued" });
  await server.database.query(
    `insert into jobs (id, queue, operation, app_id, install_id, component, state, manifest, manifest_digest,
                       finished_at, outcome)
     select 'job_old' || old, 'other', 'build', app_id, null, 'x', 'succeeded', '', '', now(), '{"status":"succeeded"}'
     from jobs, generate_series(1, 20000) as old where id = $1`,
    [jobId],
  );
  await server.database.query("analyze jobs, agents, installs, events");
  const statements: { text: string; values: readonly unknown[] }[] = [];
  const database = {
    ...server.database,
    query: <Row extends object>(text: string, values: readonly unknown[] = []) => {
      statements.push({ text, values });
      return server.database.query<Row>(text, values);
    },
  };

  await explainJob({ ...server.context, database }, jobId);
  await explainInstall({ ...server.context, database }, "large", { kind: "install" });

  assert(statements.length <= 25, String(statements.length));
  for (const { text, values } of statements) {
    const plan = await server.database.query<{ "QUERY PLAN": string }>(`explain ${text}`, values);
    const lines = plan.map((row) => row["QUERY PLAN"]).join("\n");
    assert.doesNotMatch(lines, /Seq Scan on (jobs|events)/, text);
  }
});

const noNeeds = { capabilities: [], missing: {} };

function explain(name: string, topic: Parameters<typeof explainInstall>[2]): Promise<Why> {
  return explainInstall(server.context, name, topic);
}

async function insertAgent(
  installId: string,
  { connected = true, slots = null }: { connected?: boolean; slots?: number | null },
) {
  const id = createId("agt", new Date(), server.context.random);
  await server.database.query(
    `insert into agents (id, role, install_id, public_key, connection, connected_at, seen_at, slots)
     values ($1, 'install', $2, $1, $3, $4, '2030-01-01T00:00:00Z', $5)`,
    [id, installId, connected ? "c" : null, connected ? new Date() : null, slots],
  );
  return id;
}

function waits(why: Why): (string | null)[] {
  return why.because.map(({ wait }) => wait);
}

function chain(why: Why): string[] {
  const [next] = why.because;
  return next ? [`${next.wait} ${next.subject.id}`, ...chain(next)] : [];
}
