/** What the HTTP tests begin with: a listening server on a real database, and rows to look at. */

import type { AppConfig } from "../src/model/app-config.ts";
import { createId } from "../src/model/ids.ts";
import { digestOf } from "../src/model/json.ts";
import { AppConfigSchema } from "../src/protocol/api.ts";
import { syncApp } from "../src/server/apps.ts";
import { createHttp } from "../src/server/http/http.ts";
import type { HttpOptions } from "../src/server/http/services.ts";
import { createInstall } from "../src/server/installs.ts";
import { createToken } from "../src/server/tokens.ts";
import { createServerContext, noopApp, type TestServer } from "./server-context.ts";

export interface ListeningServer extends TestServer {
  readonly url: string;
  /** A living API token. */
  readonly token: string;
  readonly tokenId: string;
  /** Asks with the token, unless `init` has other headers. */
  ask(path: string, init?: RequestInit): Promise<Response>;
}

/** Starts it on a free port. */
export async function startHttp(
  options: HttpOptions = {},
  change: Partial<TestServer["context"]> = {},
): Promise<ListeningServer> {
  const test = await createServerContext();
  const context = { ...test.context, ...change };
  const app = await createHttp(context, options);
  const url = await app.listen({ host: "127.0.0.1", port: 0 });
  const { secret, id } = await createToken(context, "server", {
    name: "test",
    kind: "api",
    days: 1,
  });
  return {
    ...test,
    context,
    url,
    token: secret,
    tokenId: id,
    ask: (path, init = {}) =>
      fetch(`${url}${path}`, {
        redirect: "manual",
        ...init,
        headers: { authorization: `Bearer ${secret}`, ...init.headers },
      }),
    async close() {
      await app.close();
      await test.close();
    },
  };
}

/** An app with these components, synced. */
export async function syncNoopApp(
  { context }: TestServer,
  name: string,
  graph: Readonly<Record<string, readonly string[]>>,
  change: (config: AppConfig) => AppConfig = (config) => config,
): Promise<AppConfig> {
  const config = change(noopApp(name, graph));
  await syncApp(context, "server", { config: AppConfigSchema.parse(config), sources: {} });
  return config;
}

/** A release of the app's newest configuration, its builds ended without an agent. */
export async function releaseApp({ database, context }: TestServer, name: string): Promise<string> {
  const artifact = { repository: `${name}/any`, digest: digestOf(name), sizeBytes: 1 };
  await database.query(
    `update jobs set state = 'succeeded', finished_at = now(), started_at = now(),
       outcome = jsonb_build_object('status', 'succeeded', 'artifact', $2::jsonb)
     where app_id = (select id from apps where name = $1) and operation = 'build' and outcome is null`,
    [name, JSON.stringify(artifact)],
  );
  await database.query(
    `update builds set state = 'succeeded', artifact = $2
     where app_id = (select id from apps where name = $1) and state = 'running'`,
    [name, JSON.stringify(artifact)],
  );
  const id = createId("rel", context.now(), context.random);
  await database.query(
    `insert into releases (id, app_id, number, config_number, components)
     select $2, c.app_id, c.number, c.number,
            (select jsonb_object_agg(e ->> 'name', jsonb_build_object('buildId', '', 'artifact', $3::jsonb))
             from jsonb_array_elements(c.config -> 'components') e)
     from app_configs c where c.app_id = (select id from apps where name = $1)
     order by c.number desc limit 1
     on conflict do nothing`,
    [name, id, JSON.stringify(artifact)],
  );
  // Where all builds could be used again, the sync has made the release already.
  const [newest] = await database.query<{ id: string }>(
    `select r.id from releases r join apps a on a.id = r.app_id where a.name = $1
     order by r.number desc limit 1`,
    [name],
  );
  return newest?.id ?? id;
}

/** An install whose sandbox is there, with these capabilities. */
export async function createActiveInstall(
  { database, context }: TestServer,
  app: string,
  name: string,
  sandbox: { capabilities: readonly string[]; missing: Readonly<Record<string, string>> },
): Promise<string> {
  const id = await createInstall(context, "server", { app, name, inputs: {} });
  const outputs = Object.fromEntries(
    Object.entries(sandbox).map(([key, value]) => [key, { sensitive: false, value }]),
  );
  await database.query(
    "update installs set state = 'active', sandbox = $2, reconcile_due_at = null where id = $1",
    [id, JSON.stringify({ outputs, outputsHash: "hash" })],
  );
  return id;
}

/** A job of an install, in any state. */
export async function insertJob(
  { database, context }: TestServer,
  installId: string,
  job: { component: string | null; operation: string; state: string; message?: string },
): Promise<string> {
  const id = createId("job", context.now(), context.random);
  const ended = ["succeeded", "failed", "cancelled"].includes(job.state);
  const owned = ["offered", "running", "unreachable"].includes(job.state);
  await database.query(
    `insert into jobs (id, queue, operation, app_id, install_id, component, state, manifest,
                       manifest_digest, deploy, n, agent_id, lease_expires_at, created_at, started_at,
                       finished_at, outcome)
     select $1, i.id, $3, i.app_id, i.id, $4, $5, '', $6, i.deploy, 1, $7,
            case when $7::text is null then null else now() + interval '1 hour' end,
            clock_timestamp(), now(), case when $8 then now() end, $9
     from installs i where i.id = $2`,
    [
      id,
      installId,
      job.operation,
      job.component,
      job.state,
      digestOf(id),
      owned ? "agt_000000000000000000000000" : null,
      ended,
      ended
        ? JSON.stringify({
            status: job.state,
            ...(job.message ? { code: "operation_failed", message: job.message } : {}),
          })
        : null,
    ],
  );
  return id;
}

/** Says that a component is deployed at the install's desired release. */
export async function insertDeployed(
  { database }: TestServer,
  installId: string,
  component: string,
  outputs: object = {},
): Promise<void> {
  await database.query(
    `insert into install_components (install_id, component, type, config, artifact, fingerprint,
                                     outputs, outputs_hash, release_id)
     select i.id, $2, 'noop', '{}', r.components -> $2 -> 'artifact', 'fingerprint', $3, 'hash', r.id
     from installs i join releases r on r.id = i.release_id where i.id = $1`,
    [installId, component, JSON.stringify(outputs)],
  );
}
