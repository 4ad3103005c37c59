/**
 * What the end of a job means for the rest of the server's data, in the transaction that ends it: a
 * crash between the two cannot happen. One function per operation.
 */
import type { AgentId, JobId } from "../model/ids.ts";
import type { Outcome } from "../model/job.ts";
import type { Manifest } from "../protocol/documents.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { settleBuild } from "./apps.ts";
import type { ServerContext } from "./context.ts";
import type { Sql } from "./database.ts";
import { type FinishedJob, finishJobs, type TakenEnd } from "./job-machine.ts";
import { readManifest } from "./manifest.ts";

type EndedJob = Pick<TakenEnd, "id" | "manifest" | "deploy" | "fingerprint">;

/**
 * Takes a job's outcome from its agent. False when it is of an older epoch, or a repetition. A failure
 * that the job's policy retries settles nothing: the job is queued again.
 */
export async function takeOutcome(
  context: ServerContext,
  agentId: AgentId,
  key: JobKey,
  outcome: Outcome,
): Promise<boolean> {
  const isFirst = await context.database.transaction(`agent:${agentId}`, async (sql) => {
    const [taken] = await takeOutcomes(context, sql, [{ ...key, agentId, outcome }]);
    return taken !== undefined;
  });
  if (isFirst) wakeAll(context, [key.jobId]);
  return isFirst;
}

/**
 * Takes outcomes of different jobs, and settles each in the name of its agent; returns the jobs whose
 * report counted. The caller's transaction acts for `agents`, and wakes (`wakeAll`) once it is committed.
 */
export async function takeOutcomes(
  context: ServerContext,
  sql: Sql,
  finished: readonly FinishedJob[],
): Promise<JobId[]> {
  const byId = new Map(finished.map((each) => [each.jobId, each]));
  const taken = await finishJobs(sql, finished);
  for (const job of taken) {
    const told = byId.get(job.id);
    if (told && job.ended) await settle(context, actAs(sql, told.agentId), job, told.outcome);
  }
  return taken.map((job) => job.id);
}

/** The same transaction, in the name of one agent from its first statement on. */
function actAs(sql: Sql, agentId: AgentId): Sql {
  let isNamed = false;
  return {
    async query<Row extends object>(text: string, values?: readonly unknown[]) {
      // One connection, in order: not awaited, it still comes first; if it fails, so does what follows.
      const named = isNamed
        ? Promise.resolve()
        : sql.query("select set_config('landfall.actor', $1, true)", [`agent:${agentId}`]);
      isNamed = true;
      const [rows] = await Promise.all([sql.query<Row>(text, values), named]);
      return rows;
    },
  };
}

/** Settles a job that ended without its executor's word: lost too often, or cancelled in the queue. */
export async function settleEnded(context: ServerContext, sql: Sql, jobId: string): Promise<void> {
  const [job] = await sql.query<EndedJob & { outcome: Outcome | null }>(
    "select id, manifest, deploy, fingerprint, outcome from jobs where id = $1",
    [jobId],
  );
  if (job?.outcome) await settle(context, sql, job, job.outcome);
}

/** Wakes all who wait for the ends of these jobs. */
export function wakeAll(context: ServerContext, jobIds: readonly JobId[]): void {
  if (jobIds.length === 0) return;
  for (const jobId of jobIds) {
    context.progress.delete(jobId);
    context.wake.notify(`log:${jobId}`);
  }
  context.wake.notify("reconcile");
  context.wake.notify("live");
}

async function settle(
  context: ServerContext,
  sql: Sql,
  job: EndedJob,
  outcome: Outcome,
): Promise<void> {
  const manifest = readManifest(job.manifest);
  await recordConflicts(sql, manifest, outcome);
  if (manifest.operation === "build") return settleBuild(context, sql, job.id, outcome);
  if (manifest.operation === "apply") return settleApply(sql, manifest, job, outcome);
  if (outcome.status !== "succeeded" || !manifest.install) return;
  switch (manifest.operation) {
    case "provision":
      return settleProvision(sql, manifest.install.id, outcome);
    case "sync":
      return settleSync(sql, manifest, outcome);
    case "plan":
      return approvePlan(sql, manifest, outcome);
    case "destroy":
      return settleDestroy(sql, manifest);
  }
}

/** Values of an older epoch that the install's store kept aside: each is told once. */
async function recordConflicts(
  sql: Sql,
  { install, component, jobId }: Manifest,
  { conflicts = [] }: Outcome,
): Promise<void> {
  if (!install || !component || conflicts.length === 0) return;
  await sql.query(
    `insert into conflicts (install_id, component, key, job_id)
     select $1, $2, unnest($3::text[]), $4 on conflict do nothing`,
    [install.id, component.name, conflicts, jobId],
  );
}

async function settleProvision(sql: Sql, installId: string, outcome: Outcome): Promise<void> {
  const sandbox = { outputs: outcome.outputs ?? {}, outputsHash: outcome.outputsHash ?? "" };
  await sql.query(
    "update installs set sandbox = $2, state = case when state = 'provisioning' then 'active' else state end where id = $1",
    [installId, JSON.stringify(sandbox)],
  );
}

async function settleSync(sql: Sql, manifest: Manifest, outcome: Outcome): Promise<void> {
  const { install, artifact } = manifest;
  if (!install || !artifact?.digest) return;
  const copied = [
    { repository: artifact.repository, digest: artifact.digest },
    ...(outcome.copied ?? []),
  ];
  await sql.query(
    `insert into install_artifacts (install_id, digest, repository)
     select $1, * from unnest($2::text[], $3::text[]) on conflict do nothing`,
    [install.id, copied.map((each) => each.digest), copied.map((each) => each.repository)],
  );
}

/** At this stage every plan is approved by itself, and the approval recorded like any other. */
async function approvePlan(sql: Sql, manifest: Manifest, outcome: Outcome): Promise<void> {
  const { install, component, jobId } = manifest;
  if (!install || !component || !outcome.plan) return;
  await sql.query(
    `insert into approvals (job_id, install_id, component, approval_digest, plan_digest, approved_by)
     values ($1, $2, $3, $4, $5, 'policy:automatic')`,
    [jobId, install.id, component.name, outcome.plan.approvalDigest, outcome.plan.planDigest],
  );
}

/** A failed apply leaves something unknown behind: it is remembered, so that it can be destroyed. */
async function settleApply(
  sql: Sql,
  manifest: Manifest,
  job: EndedJob,
  outcome: Outcome,
): Promise<void> {
  const { install, component, artifact } = manifest;
  if (!install || !component || !artifact) return;
  const isWhole = outcome.status === "succeeded";
  // A plan that was refused as stale has touched nothing.
  if (outcome.code === "stale_plan" || outcome.code === "stale_values") return;
  await sql.query(
    `insert into install_components (install_id, component, type, config, dependencies, artifact,
                                     fingerprint, outputs, outputs_hash, release_id)
     select $1, $2, $3, $4, $5, $6, $7, $8, $9,
            (select release_id from installs where id = $1 and deploy = $10)
     on conflict (install_id, component) do update set
       type = excluded.type, config = excluded.config, dependencies = excluded.dependencies,
       artifact = excluded.artifact, fingerprint = excluded.fingerprint, release_id = excluded.release_id,
       outputs = case when $11 then excluded.outputs else install_components.outputs end,
       outputs_hash = case when $11 then excluded.outputs_hash else install_components.outputs_hash end,
       applied_at = clock_timestamp()`,
    [
      install.id,
      component.name,
      component.type,
      JSON.stringify(component.config),
      Object.keys(manifest.dependencies),
      JSON.stringify(artifact),
      isWhole ? job.fingerprint : "",
      JSON.stringify(outcome.outputs ?? {}),
      outcome.outputsHash ?? "",
      job.deploy,
      isWhole,
    ],
  );
}

async function settleDestroy(sql: Sql, { install, component }: Manifest): Promise<void> {
  if (!install) return;
  if (component) {
    await sql.query("delete from install_components where install_id = $1 and component = $2", [
      install.id,
      component.name,
    ]);
    return;
  }
  await sql.query(
    "update installs set state = 'deleted', deleted_at = clock_timestamp(), reconcile_due_at = null where id = $1",
    [install.id],
  );
  await sql.query(
    "update agents set revoked_at = clock_timestamp() where install_id = $1 and revoked_at is null",
    [install.id],
  );
}
