/** Reads jobs for people, newest first, by pages that end at a job. */
import { Fault } from "../../model/fault.ts";
import { formatEpoch, type JobState, type Operation, type Outcome } from "../../model/job.ts";
import type { JobView } from "../../protocol/api.ts";
import type { Sql } from "../database.ts";

export const jobsPageMax = 500;

interface JobRow {
  readonly id: string;
  readonly operation: Operation;
  readonly state: JobState;
  readonly app: string;
  readonly install: string | null;
  readonly component: string | null;
  readonly generation: number;
  readonly n: number;
  readonly agent_id: string | null;
  readonly manifest_digest: string;
  readonly created_at: Date;
  readonly started_at: Date | null;
  readonly finished_at: Date | null;
  readonly cancel_requested_at: Date | null;
  readonly outcome: Outcome | null;
}

export interface JobFilter {
  readonly installId: string | null;
  readonly state: JobState | null;
  /** The last job of the page before. */
  readonly after: string | null;
  readonly limit: number;
}

/** One page of jobs; `next` is what to ask for the following one. */
export async function listJobs(
  sql: Sql,
  { installId, state, after, limit }: JobFilter,
): Promise<{ jobs: JobView[]; next: string | null }> {
  const size = Math.min(limit, jobsPageMax);
  const jobs = await selectJobs(
    sql,
    `where ($1::text is null or j.install_id = $1) and ($2::text is null or j.state = $2)
       and ($3::text is null or (j.created_at, j.id) < (select created_at, id from jobs where id = $3))
     order by j.created_at desc, j.id desc limit $4`,
    [installId, state, after, size + 1],
  );
  const page = jobs.slice(0, size);
  return { jobs: page, next: jobs.length > size ? (page.at(-1)?.id ?? null) : null };
}

/** What is under way, and the newest of what has ended. */
export async function listRecentJobs(
  sql: Sql,
  unfinishedMax: number,
  finishedMax: number,
): Promise<JobView[]> {
  // Two index scans: `jobs_queued` and `jobs_of_agent` hold unfinished jobs alone.
  return selectJobs(
    sql,
    `where j.id in (
       (select id from jobs where state = 'queued' limit $1)
       union all (select id from jobs where agent_id is not null limit $1)
       union all (select id from jobs where outcome is not null
                  order by created_at desc, id limit $2))
     order by j.created_at desc, j.id desc`,
    [unfinishedMax, finishedMax],
  );
}

/** One job; `Fault` when there is none. */
export async function viewJob(sql: Sql, id: string): Promise<JobView> {
  const [view] = await selectJobs(sql, "where j.id = $1", [id]);
  if (!view) throw noJob(id);
  return view;
}

/** The refusal for an id that names no job. */
export function noJob(id: string): Fault {
  return new Fault(
    "not_found",
    `Expected the id of a job, got \`${id}\`. List them with \`landfall jobs list\`.`,
  );
}

async function selectJobs(sql: Sql, rest: string, values: readonly unknown[]): Promise<JobView[]> {
  const rows = await sql.query<JobRow>(
    `select j.id, j.operation, j.state, a.name as app, i.name as install, j.component, j.generation,
            j.n, j.agent_id, j.manifest_digest, j.created_at, j.started_at, j.finished_at,
            j.cancel_requested_at, j.outcome
     from jobs j join apps a on a.id = j.app_id left join installs i on i.id = j.install_id
     ${rest}`,
    values,
  );
  return rows.map((row) => ({
    id: row.id,
    operation: row.operation,
    state: row.state,
    app: row.app,
    install: row.install,
    component: row.component,
    epoch: formatEpoch(row),
    agentId: row.agent_id,
    manifestDigest: row.manifest_digest,
    createdAt: row.created_at.toISOString(),
    startedAt: row.started_at?.toISOString() ?? null,
    finishedAt: row.finished_at?.toISOString() ?? null,
    cancelRequestedAt: row.cancel_requested_at?.toISOString() ?? null,
    outcome: row.outcome as JobView["outcome"],
  }));
}
