/** Who is offered jobs is decided by the statement that offers them, whatever a connection believes. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createServerContext, type TestServer } from "../../../test/server-context.ts";
import { buildQueue } from "../job-machine.ts";
import { type AgentKey, enrolDouble } from "./agent-double.ts";
import { queueBuilds } from "./gateway-bench.ts";
import { claimConnection } from "./handshake.ts";
import { claimAll } from "./offers.ts";

let server: TestServer;
before(async () => {
  server = await createServerContext();
});
after(() => server.close());

test("a connection that was superseded between its look and its question is offered nothing", async () => {
  const agent = await enrolDouble(server.context);
  await claimConnection(server.context, agent.id, "older", null);
  await claimConnection(server.context, agent.id, "newer", null);
  await queueBuilds(server, "superseded");

  assert.equal(await offersTo(agent, "older"), 0);
  assert.equal(await offersTo(agent, "newer"), 1);
});

test("an agent that drains or is revoked is offered nothing, although its connection does not know yet", async () => {
  const agent = await enrolDouble(server.context);
  await claimConnection(server.context, agent.id, "only", null);
  await queueBuilds(server, "withheld");
  const change = (what: string) =>
    server.database.query(`update agents set ${what} where id = $1`, [agent.id]);

  await change("draining_at = now(), drain_reason = 'upgrade'");
  assert.equal(await offersTo(agent, "only"), 0);
  await change("draining_at = null, drain_reason = null, revoked_at = now()");
  assert.equal(await offersTo(agent, "only"), 0);
  await change("revoked_at = null");
  assert.equal(await offersTo(agent, "only"), 1);
});

async function offersTo({ id }: AgentKey, connection: string): Promise<number> {
  const { now: serverNow } = server.context;
  const ask = { agentId: id, connection, queue: buildQueue, limit: 5, serverNow };
  const [offers = []] = await claimAll(server.context, [ask]);
  return offers.length;
}

test("a hello that is heard after a later one of the same folder is not obeyed", async () => {
  const agent = await enrolDouble(server.context);
  const count = (number: number, folder = "one") => ({ folder, number });

  assert.equal(await claimConnection(server.context, agent.id, "second", count(2)), true);
  assert.equal(await claimConnection(server.context, agent.id, "first", count(1)), false);
  assert.equal(await claimConnection(server.context, agent.id, "second again", count(2)), false);
  assert.equal(await claimConnection(server.context, agent.id, "third", count(3)), true);
  assert.equal(await claimConnection(server.context, agent.id, "moved", count(1, "two")), true);
});
