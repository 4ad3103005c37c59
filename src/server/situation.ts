/** Loads what an install is right now, one statement each, for the pure reconcile to look at. */
import type { ArtifactReference, Operation, OutcomeCode } from "../model/job.ts";
import type { Digest } from "../model/json.ts";
import type { ActiveComponent, FinishedJob } from "../model/reconcile.ts";
import type { Sql } from "./database.ts";

/** What is deployed, with all that a destroy of it needs. */
export async function loadActive(sql: Sql, installId: string): Promise<ActiveComponent[]> {
  return sql.query(
    `select component as name, type, config, dependencies, artifact, fingerprint,
            outputs_hash as "outputsHash"
     from install_components where install_id = $1 order by component`,
    [installId],
  );
}

/** Digests that the install's own registry holds. */
export async function loadSynced(sql: Sql, installId: string): Promise<Set<Digest>> {
  const rows = await sql.query<{ digest: Digest }>(
    "select distinct digest from install_artifacts where install_id = $1",
    [installId],
  );
  return new Set(rows.map((row) => row.digest));
}

/** Components with an unfinished job; null is the sandbox. */
export async function loadUnderWay(sql: Sql, installId: string): Promise<Set<string | null>> {
  const rows = await sql.query<{ component: string | null }>(
    // By state, not by outcome: only so can the index of unfinished jobs answer, whose size is that of
    // the work under way and not that of the install's whole history.
    `select component from jobs
     where install_id = $1 and state not in ('succeeded', 'failed', 'cancelled')`,
    [installId],
  );
  return new Set(rows.map((row) => row.component));
}

interface FinishedRow {
  component: string | null;
  operation: Operation;
  state: FinishedJob["status"];
  code: OutcomeCode | null;
  fingerprint: Digest | null;
  artifact: ArtifactReference["digest"] | null;
  approval_digest: Digest | null;
  plan_digest: Digest | null;
  stale_count: number;
}

/** The newest finished job of each component in this deploy. */
export async function loadFinished(
  sql: Sql,
  installId: string,
  deploy: number,
): Promise<Map<string | null, FinishedJob>> {
  const rows = await sql.query<FinishedRow>(
    `select distinct on (coalesce(jobs.component, ''))
            jobs.component, jobs.operation, jobs.state, jobs.outcome ->> 'code' as code, jobs.fingerprint,
            jobs.artifact_digest as artifact, approvals.approval_digest, approvals.plan_digest,
            count(*) filter (where jobs.outcome ->> 'code' in ('stale_plan', 'stale_values'))
              over (partition by coalesce(jobs.component, '')) as stale_count
     from jobs left join approvals on approvals.job_id = jobs.id
     where jobs.install_id = $1 and jobs.deploy = $2 and jobs.outcome is not null
     order by coalesce(jobs.component, ''), jobs.finished_at desc, jobs.id desc`,
    [installId, deploy],
  );
  return new Map(
    rows.map((row) => [
      row.component,
      {
        operation: row.operation,
        status: row.state,
        code: row.code,
        fingerprint: row.fingerprint,
        artifactDigest: row.artifact,
        approval:
          row.approval_digest && row.plan_digest
            ? { approvalDigest: row.approval_digest, planDigest: row.plan_digest }
            : null,
        staleCount: row.stale_count,
      },
    ]),
  );
}
