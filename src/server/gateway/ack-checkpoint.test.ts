/** What an agent forgets, it must be able to miss in a restored server: ends are acknowledged with a place in history. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createServerContext, type TestServer } from "../../../test/server-context.ts";
import { connectAgent, enrolDouble, logEvent, outcomeEvent } from "./agent-double.ts";
import { queueBuilds, startGateway } from "./gateway-bench.ts";

let server: TestServer;
before(async () => {
  server = await createServerContext();
});
after(() => server.close());

test("with the end of a job its agent learns a place in history that tells of it", async (t) => {
  const { url } = await startGateway(t, server.context);
  const agent = await connectAgent(url, server.context, await enrolDouble(server.context));
  const welcome = await agent.nextEffect("welcome");
  await queueBuilds(server, "history");
  const job = await agent.nextJob();

  agent.send({ type: "events", ...job, events: [logEvent(1)] });
  const line = await agent.nextEffect("ack");
  agent.send({ type: "events", ...job, events: [outcomeEvent(2)] });
  const end = await agent.nextEffect("ack");

  assert.equal(line.checkpoint, undefined);
  const [event] = await server.database.query<{ id: number }>(
    "select id from events where job_id = $1 and kind = 'job.succeeded'",
    [job.jobId],
  );
  assert(Number(end.checkpoint?.position) >= Number(event?.id));
  assert(Number(end.checkpoint?.position) > Number(welcome.checkpoint?.position));
});
