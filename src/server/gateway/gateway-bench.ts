/** What the gateway's tests begin with: a gateway with limits of its own on a real port, and jobs to give away. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { noopApp, type TestServer } from "../../../test/server-context.ts";
import { AppConfigSchema } from "../../protocol/api.ts";
import { syncApp } from "../apps.ts";
import type { ServerContext } from "../context.ts";
import { attachGateway, createGateway, type Gateway } from "./gateway.ts";
import type { GatewayLimits } from "./limits.ts";

/** A gateway that listens until the test is over. */
export async function startGateway(
  t: Pick<TestContext, "after">,
  context: ServerContext,
  limits: Partial<GatewayLimits> = {},
): Promise<{ url: string; gateway: Gateway }> {
  const gateway = createGateway(context, limits);
  const http = createServer();
  attachGateway(http, gateway);
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  t.after(async () => {
    await gateway.close();
    http.close();
  });
  return { url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`, gateway };
}

/** Queues builds of one new app, and ends whatever other tests left. */
export async function queueBuilds(
  { database, context }: Pick<TestServer, "database" | "context">,
  name: string,
  count = 1,
): Promise<void> {
  await database.query(
    `update jobs set state = 'cancelled', agent_id = null, lease_expires_at = null, finished_at = now(),
       outcome = '{"status":"cancelled"}' where outcome is null`,
  );
  const names = Array.from({ length: count }, (_, index) => [`part${index}`, []]);
  const config = AppConfigSchema.parse(noopApp(name, Object.fromEntries(names)));
  await syncApp(context, "token:test", { config, sources: {} });
}
