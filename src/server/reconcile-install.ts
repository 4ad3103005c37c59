/**
 * Reconcile at the edge: lock installs' rows, load their situations, ask the pure `reconcile`, queue
 * what it says. Two servers and fifty triggers at once make the same jobs as one: the row's lock sees
 * to it, and a unique index stands behind it.
 */
import type { AppConfig } from "../model/app-config.ts";
import { disabledComponents } from "../model/capability.ts";
import type { DesiredComponent } from "../model/fingerprint.ts";
import type { AppId, InstallId } from "../model/ids.ts";
import type { ArtifactReference, Output } from "../model/job.ts";
import type { Digest, JsonObject } from "../model/json.ts";
import { type InstallSituation, type NextJob, reconcile } from "../model/reconcile.ts";
import type { ServerContext } from "./context.ts";
import type { Sql } from "./database.ts";
import { type NewJob, queueJobs } from "./job-machine.ts";
import { createJob, type ManifestDraft } from "./manifest.ts";
import { loadActive, loadFinished, loadSynced, loadUnderWay } from "./situation.ts";

export interface InstallRow {
  id: InstallId;
  app_id: AppId;
  app_name: string;
  name: string;
  state: InstallSituation["state"];
  /** Paused, or restored and not told about yet. */
  held: boolean;
  sandbox_type: string;
  sandbox: { outputs: Record<string, Output>; outputsHash: string } | null;
  inputs: Record<string, string>;
  deploy: number;
  generation: number;
  release_components: Record<string, { artifact: ArtifactReference }> | null;
  config: AppConfig | null;
}

/** How many installs one transaction reconciles at most: their rows stay locked until it commits. */
const installsAtOnce = 16;

/** Reconciles installs that are due, a few in one transaction. False when none is. */
export async function reconcileNext(context: ServerContext): Promise<boolean> {
  const queues = await context.database.transaction("server", async (sql) => {
    const installs = await lockDueInstalls(sql);
    if (installs.length === 0) return null;
    const jobs = await nextJobs(context, sql, installs);
    if (jobs.length > 0) await queueJobs(sql, jobs);
    await sql.query("update installs set reconcile_due_at = null where id = any($1)", [
      installs.map(({ id }) => id),
    ]);
    return new Set(jobs.map((job) => job.queue));
  });
  if (!queues) return false;
  for (const queue of queues) context.wake.notify(`jobs:${queue}`);
  context.wake.notify("live");
  return true;
}

/** The next jobs of locked installs, signed. */
async function nextJobs(
  context: ServerContext,
  sql: Sql,
  installs: readonly InstallRow[],
): Promise<NewJob[]> {
  const situations = await Promise.all(installs.map((install) => loadSituation(sql, install)));
  const jobs: NewJob[] = [];
  for (const [index, install] of installs.entries()) {
    const situation = situations[index];
    if (!situation) continue;
    const { deploy, generation } = install;
    for (const each of reconcile(situation)) {
      const draft = draftManifest(install, situation, each);
      jobs.push(await createJob(context, draft, { deploy, generation }));
    }
  }
  return jobs;
}

function lockDueInstalls(sql: Sql): Promise<InstallRow[]> {
  return sql.query<InstallRow>(
    `select installs.id, installs.app_id, apps.name as app_name, installs.name, installs.state,
            installs.paused_at is not null or installs.recall_since is not null as held,
            installs.sandbox_type, installs.sandbox, installs.inputs, installs.deploy, installs.generation,
            releases.components as release_components, app_configs.config
     from installs
     join apps on apps.id = installs.app_id
     left join releases on releases.id = installs.release_id
     left join app_configs on app_configs.app_id = releases.app_id
                          and app_configs.number = releases.config_number
     where installs.reconcile_due_at <= clock_timestamp()
     order by installs.reconcile_due_at limit $1
     for update of installs skip locked`,
    [installsAtOnce],
  );
}

/** All four at once: they go out together, and cost one round trip. */
async function loadSituation(sql: Sql, install: InstallRow): Promise<InstallSituation> {
  const { id, deploy } = install;
  const [active, synced, underWay, finished] = await Promise.all([
    loadActive(sql, id),
    loadSynced(sql, id),
    loadUnderWay(sql, id),
    loadFinished(sql, id, deploy),
  ]);
  return {
    state: install.state,
    held: install.held,
    inputs: install.inputs,
    sandboxHash: install.sandbox?.outputsHash ?? null,
    desired: desiredComponents(install),
    active,
    synced,
    underWay,
    finished,
  };
}

/** Components of the desired release that this sandbox can run. */
function desiredComponents({
  config,
  release_components,
  sandbox,
}: InstallRow): DesiredComponent[] {
  if (!config || !release_components) return [];
  const disabled = disabledComponents(config.components, ...capabilitiesOf(sandbox?.outputs ?? {}));
  return config.components.flatMap((component) => {
    const artifact = release_components[component.name]?.artifact;
    if (!artifact || disabled.has(component.name)) return [];
    const { name, type, dependencies, config: own } = component;
    return [{ name, type, dependencies, artifact, config: own }];
  });
}

/** What the sandbox said it can run, and why it cannot run the rest. */
export function capabilitiesOf(
  outputs: Readonly<Record<string, Output>>,
): [capabilities: string[], missing: Record<string, string>] {
  const plainValue = (name: string) => {
    const output = outputs[name];
    return output && !output.sensitive ? output.value : null;
  };
  return [
    (plainValue("capabilities") as string[] | null) ?? [],
    (plainValue("missing") as Record<string, string> | null) ?? {},
  ];
}

function draftManifest(
  install: InstallRow,
  { desired, active }: InstallSituation,
  next: NextJob,
): ManifestDraft {
  const base = {
    operation: next.operation,
    app: { id: install.app_id, name: install.app_name },
    install: { id: install.id, name: install.name },
    source: null,
    inputs: install.inputs,
    dependencies: { ...next.dependencies },
    approval: next.approval,
    fingerprint: next.fingerprint,
  };
  if (next.component === null) {
    const { sandbox_type: type } = install;
    const config: JsonObject = install.config?.sandbox.config ?? {};
    return {
      ...base,
      plugin: `sandbox/${type}`,
      component: null,
      sandbox: { type, config },
      artifact: null,
    };
  }
  // What is to be destroyed is destroyed as it was applied, whatever the release says now.
  const component =
    next.operation === "destroy"
      ? active.find(({ name }) => name === next.component)
      : desired.find(({ name }) => name === next.component);
  if (!component) throw new Error(`Reconcile asked for unknown component ${next.component}.`);
  const { name, type, config, artifact } = component;
  return {
    ...base,
    plugin: type,
    component: { name, type, config },
    sandbox: null,
    artifact: { ...artifact, digest: artifact.digest as Digest },
  };
}
