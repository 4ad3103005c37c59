/** Reads what is needed to say why a job, a component, a deploy or an install is where it is, and says it. */
import { Fault } from "../../model/fault.ts";
import type { FirstCause, Why } from "../../model/why.ts";
import { whyDeploy, whyInstall } from "../../model/why-deploy.ts";
import { beginTelling, type InstallFacts, whyComponent } from "../../model/why-install.ts";
import { causeOf, type JobFacts, whyJob } from "../../model/why-job.ts";
import type { InstallView } from "../../protocol/api.ts";
import type { ServerContext } from "../context.ts";
import type { Sql } from "../database.ts";
import { toBeRemoved } from "./component-state.ts";
import { findInstallId, viewInstallById } from "./installs.ts";
import { noJob } from "./jobs.ts";
import { readAgents, readHolds, readJobFacts } from "./why-facts.ts";

/** Failures of one deploy that are looked at. */
const failuresMax = 100;

/** What of an install is asked about: all of it, one component, or a deploy (null: the current one). */
export type WhyTopic =
  | { readonly kind: "install" }
  | { readonly kind: "component"; readonly name: string }
  | { readonly kind: "deploy"; readonly number: number | null };

/** Why a job is where it is; `Fault` when there is none. */
export async function explainJob(context: ServerContext, id: string): Promise<Why> {
  const [job] = await readJobFacts(context.database, [id]);
  if (!job) throw noJob(id);
  return whyJob(job, context.now());
}

/** Why an install, or a part of it, is where it is; `Fault` when there is no such thing. */
export async function explainInstall(
  context: ServerContext,
  name: string,
  topic: WhyTopic,
): Promise<Why> {
  const sql = context.database;
  const view = await viewInstallById(context, await findInstallId(sql, name));
  const facts = await readInstallFacts(sql, view);
  const now = context.now();
  if (topic.kind === "install") return whyInstall(facts, now);
  if (topic.kind === "deploy") {
    const number = topic.number ?? view.deploy;
    if (number > view.deploy) {
      throw new Fault(
        "not_found",
        `Expected a deploy of \`${view.name}\` up to ${view.deploy}, got ${number}.`,
      );
    }
    const failures = await readFailures(sql, view.id, number);
    return whyDeploy(facts, { number, failures }, now);
  }
  const why = whyComponent(beginTelling(facts, now), topic.name);
  if (why) return why;
  const names = view.components.map((component) => `\`${component.name}\``).join(", ") || "none";
  throw new Fault(
    "not_found",
    `Expected a component of \`${view.name}\` (${names}), got \`${topic.name}\`.`,
  );
}

async function readInstallFacts(sql: Sql, view: InstallView): Promise<InstallFacts> {
  const [row] = await sql.query<{ due: boolean; sandbox_job: string | null; open: string[] }>(
    `select reconcile_due_at is not null as due,
            (select id from jobs where install_id = $1 and component is null
               and (deploy = installs.deploy or outcome is null)
             order by created_at desc, id desc limit 1) as sandbox_job,
            array(select id from jobs where install_id = $1
                    and state not in ('succeeded', 'failed', 'cancelled')) as open
     from installs where id = $1`,
    [view.id],
  );
  const wanted = new Set([
    ...(row?.open ?? []),
    ...view.components.flatMap(({ jobId }) => jobId ?? []),
    ...(row?.sandbox_job ? [row.sandbox_job] : []),
  ]);
  const [jobs, holds, agents, unapproved] = await Promise.all([
    readJobFacts(sql, [...wanted]),
    readHolds(sql, [view.id]),
    readAgents(sql, [view.id]),
    readUnapproved(sql, view),
  ]);
  const byId = new Map(jobs.map((job) => [job.id, job]));
  const sandboxJob = byId.get(row?.sandbox_job ?? "") ?? null;
  return {
    name: view.name,
    app: view.app,
    state: view.state,
    releaseNumber: view.releaseNumber,
    deploy: view.deploy,
    createdAt: view.createdAt,
    settled: view.settled,
    due: row?.due ?? false,
    hold: holds.get(view.id) ?? {
      install: view.name,
      pause: null,
      restoredAt: null,
      jobsMax: null,
      underWay: [],
    },
    agents: agents.map(({ facts }) => facts).filter(({ revokedAt }) => revokedAt === null),
    sandbox: {
      job: unfinished(sandboxJob),
      failure: sandboxJob && causeOf(sandboxJob),
    },
    components: view.components.map((component) => {
      const job = byId.get(component.jobId ?? "") ?? null;
      return {
        name: component.name,
        state: component.state,
        reason: component.reason,
        dependencies: component.dependencies,
        leaving: view.state === "deleting" || component.reason?.startsWith(toBeRemoved) === true,
        job: unfinished(job),
        failure: job && causeOf(job),
        approval: unapproved.get(component.jobId ?? "") ?? null,
      };
    }),
  };
}

function unfinished(job: JobFacts | null): JobFacts | null {
  return job && job.outcome === null ? job : null;
}

/** Plans of this deploy that are a component's newest job, and that nobody has approved. */
async function readUnapproved(
  sql: Sql,
  view: InstallView,
): Promise<Map<string, { jobId: string; since: string }>> {
  const rows = await sql.query<{ id: string; finished_at: Date }>(
    `select id, finished_at from jobs
     where id = any($1) and operation = 'plan' and state = 'succeeded'
       and not exists (select 1 from approvals where job_id = jobs.id)`,
    [view.components.flatMap(({ jobId }) => jobId ?? [])],
  );
  return new Map(
    rows.map(({ id, finished_at }) => [id, { jobId: id, since: finished_at.toISOString() }]),
  );
}

/** The first failures of a deploy, oldest first. */
async function readFailures(sql: Sql, installId: string, deploy: number): Promise<FirstCause[]> {
  const rows = await sql.query<{
    id: string;
    state: string;
    code: string | null;
    message: string | null;
    finished_at: Date;
  }>(
    `select id, state, outcome ->> 'code' as code, outcome ->> 'message' as message, finished_at
     from jobs where install_id = $1 and deploy = $2 and state in ('failed', 'cancelled')
       and outcome ->> 'code' is distinct from 'stale_plan'
       and outcome ->> 'code' is distinct from 'stale_values'
     order by finished_at, id limit $3`,
    [installId, deploy, failuresMax],
  );
  return rows.map(({ id, state, code, message, finished_at }) => ({
    jobId: id,
    code: code ?? state,
    message,
    at: finished_at.toISOString(),
  }));
}
