/**
 * Apps: a described app becomes a numbered configuration, its builds, and (once they are all there) a
 * release of exact digests. The same description again changes nothing; a build whose inputs did not
 * change is used again.
 */
import { Fault } from "../model/fault.ts";
import { findCycle } from "../model/graph.ts";
import { type AppId, type BuildId, createId } from "../model/ids.ts";
import type { ArtifactReference, Outcome } from "../model/job.ts";
import { type Digest, digestOfJson } from "../model/json.ts";
import type { SyncAnswer, SyncRequest } from "../protocol/api.ts";
import type { ServerContext } from "./context.ts";
import { onlyRow, type Sql } from "./database.ts";
import { buildQueue, queueJobs } from "./job-machine.ts";
import { createJob } from "./manifest.ts";
import { listBuildsOfConfig } from "./views/apps.ts";

type Component = SyncRequest["config"]["components"][number];

/** Takes an app's description: all or nothing. */
export async function syncApp(
  context: ServerContext,
  actor: string,
  request: SyncRequest,
): Promise<SyncAnswer> {
  refuseBadGraph(request.config.components);
  const answer = await context.database.transaction(actor, async (sql) => {
    const app = await upsertApp(context, sql, request.config.name);
    const { number, changed } = await upsertConfig(sql, app.id, request);
    for (const component of request.config.components) {
      await ensureBuild(context, sql, app, number, component, request);
    }
    const releaseNumber = await completeRelease(context, sql, app.id, number);
    const builds = await listBuildsOfConfig(sql, app.id, number);
    return { app: app.name, configNumber: number, changed, builds, releaseNumber };
  });
  context.wake.notify(`jobs:${buildQueue}`);
  context.wake.notify("reconcile");
  context.wake.notify("live");
  return answer;
}

/** What the end of a build job means: the build, and every release that only waited for it. */
export async function settleBuild(
  context: ServerContext,
  sql: Sql,
  jobId: string,
  outcome: Outcome,
): Promise<void> {
  const artifact = outcome.status === "succeeded" ? outcome.artifact : undefined;
  const [build] = await sql.query<{ id: BuildId; app_id: AppId }>(
    "update builds set state = $2, artifact = $3 where job_id = $1 and state = 'running' returning id, app_id",
    [jobId, artifact ? "succeeded" : "failed", artifact ? JSON.stringify(artifact) : null],
  );
  if (!build || !artifact) return;
  const waiting = await sql.query<{ config_number: number }>(
    "select config_number from config_builds where build_id = $1 order by config_number",
    [build.id],
  );
  // Two builds of one configuration may end at once: the app's row decides who completes the release.
  await sql.query("select id from apps where id = $1 for update", [build.app_id]);
  for (const { config_number } of waiting) {
    await completeRelease(context, sql, build.app_id, config_number);
  }
}

function refuseBadGraph(components: readonly Component[]): void {
  const names = new Set(components.map((component) => component.name));
  for (const { name, dependencies } of components) {
    const unknown = dependencies.find((dependency) => !names.has(dependency));
    if (unknown)
      throw new Fault(
        "invalid",
        `Component \`${name}\` depends on \`${unknown}\`, which is not there.`,
      );
  }
  if (names.size < components.length)
    throw new Fault("invalid", "Expected component names to be unique.");
  const cycle = findCycle(
    new Map(components.map(({ name, dependencies }) => [name, dependencies])),
  );
  if (cycle) throw new Fault("invalid", `Expected no dependency cycle, got ${cycle.join(" → ")}.`);
}

async function upsertApp(
  context: ServerContext,
  sql: Sql,
  name: string,
): Promise<{ id: AppId; name: string }> {
  await sql.query("insert into apps (id, name) values ($1, $2) on conflict (name) do nothing", [
    createId("app", context.now(), context.random),
    name,
  ]);
  return onlyRow(
    await sql.query<{ id: AppId; name: string }>(
      "select id, name from apps where name = $1 for update",
      [name],
    ),
  );
}

async function upsertConfig(
  sql: Sql,
  appId: AppId,
  { config, sources }: SyncRequest,
): Promise<{ number: number; changed: boolean }> {
  // Where in a file a component stands is for messages only: moving it around is no change.
  const components = config.components.map((component) => ({ ...component, position: null }));
  const digest = digestOfJson({ ...config, components, sources });
  const [newest] = await sql.query<{ number: number; digest: string }>(
    "select number, digest from app_configs where app_id = $1 order by number desc limit 1",
    [appId],
  );
  if (newest?.digest === digest) return { number: newest.number, changed: false };
  const number = (newest?.number ?? 0) + 1;
  await sql.query(
    "insert into app_configs (app_id, number, config, digest) values ($1, $2, $3, $4)",
    [appId, number, JSON.stringify(config), digest],
  );
  return { number, changed: true };
}

async function ensureBuild(
  context: ServerContext,
  sql: Sql,
  app: { id: AppId; name: string },
  configNumber: number,
  component: Component,
  { sources }: SyncRequest,
): Promise<void> {
  const { name, type, config } = component;
  const source = sources[name] ?? null;
  if ((source !== null) !== (component.source !== null)) {
    throw new Fault(
      "invalid",
      `Expected the source of component \`${name}\` to be uploaded with it.`,
    );
  }
  if (source) await requireSource(sql, name, source.digest);
  const inputsDigest = digestOfJson({ type, config, source: source?.digest ?? null });
  const [found] = await sql.query<{ id: BuildId }>(
    "select id from builds where app_id = $1 and component = $2 and inputs_digest = $3 and state <> 'failed'",
    [app.id, name, inputsDigest],
  );
  const buildId = found?.id ?? createId("bld", context.now(), context.random);
  if (!found) {
    const job = await createJob(
      context,
      {
        operation: "build",
        app,
        install: null,
        plugin: type,
        component: { name, type, config },
        sandbox: null,
        source,
        artifact: { repository: `${app.name}/${name}`, digest: null, sizeBytes: 0 },
        inputs: {},
        dependencies: {},
        approval: null,
        fingerprint: null,
      },
      { deploy: 0, generation: 1 },
    );
    // A build has no install; its component is told so that people can read the list.
    await queueJobs(sql, [job]);
    await sql.query(
      `insert into builds (id, app_id, component, config_number, inputs_digest, source_digest, job_id)
       values ($1, $2, $3, $4, $5, $6, $7)`,
      [buildId, app.id, name, configNumber, inputsDigest, source?.digest ?? null, job.id],
    );
  }
  await sql.query(
    `insert into config_builds (app_id, config_number, component, build_id) values ($1, $2, $3, $4)
     on conflict (app_id, config_number, component) do update set build_id = excluded.build_id`,
    [app.id, configNumber, name, buildId],
  );
}

async function requireSource(sql: Sql, component: string, digest: Digest): Promise<void> {
  const rows = await sql.query("select 1 from sources where digest = $1", [digest]);
  if (rows.length === 0) {
    throw new Fault(
      "invalid",
      `Expected the source of \`${component}\` (${digest}) to be uploaded first.`,
    );
  }
}

/** Makes the release of a configuration once every build of it has succeeded; gives its number. */
async function completeRelease(
  context: ServerContext,
  sql: Sql,
  appId: AppId,
  configNumber: number,
): Promise<number | null> {
  const [existing] = await sql.query<{ number: number }>(
    "select number from releases where app_id = $1 and config_number = $2",
    [appId, configNumber],
  );
  if (existing) return existing.number;
  const builds = await sql.query<{
    component: string;
    id: string;
    artifact: ArtifactReference | null;
  }>(
    `select config_builds.component, builds.id, builds.artifact
     from config_builds join builds on builds.id = config_builds.build_id
     where config_builds.app_id = $1 and config_builds.config_number = $2`,
    [appId, configNumber],
  );
  if (builds.some((build) => build.artifact === null)) return null;
  const components = Object.fromEntries(
    builds.map(({ component, id, artifact }) => [component, { buildId: id, artifact }]),
  );
  const release = onlyRow(
    await sql.query<{ id: string; number: number }>(
      `insert into releases (id, app_id, number, config_number, components)
       select $1, $2, coalesce(max(number), 0) + 1, $3, $4 from releases where app_id = $2
       returning id, number`,
      [
        createId("rel", context.now(), context.random),
        appId,
        configNumber,
        JSON.stringify(components),
      ],
    ),
  );
  // Installs that were created before there was anything to deploy get their first release.
  await sql.query(
    `update installs set release_id = $2, reconcile_due_at = clock_timestamp()
     where app_id = $1 and release_id is null and state in ('provisioning', 'active')`,
    [appId, release.id],
  );
  return release.number;
}
