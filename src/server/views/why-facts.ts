/**
 * Reads the facts behind `why`: jobs by id, the agents that could run or do run them, the head of
 * their queues, what holds their installs. A fixed number of statements, each by an index, whatever the
 * number of installs and finished jobs.
 *
 * Invariant: every list that is read has a maximum.
 */
import type { JobState, Operation, Outcome } from "../../model/job.ts";
import type { AgentFacts, JobName, QueueAgents } from "../../model/why-agent.ts";
import type { HoldFacts } from "../../model/why-hold.ts";
import type { JobFacts } from "../../model/why-job.ts";
import type { Sql } from "../database.ts";
import { buildQueue } from "../job-machine.ts";
import { actorName } from "./actor-name.ts";

/** How far a queue is looked at: whoever stands behind that is told "very many". */
const queueLookMax = 1000;
const queueNamesMax = 3;
const agentsMax = 20;
const jobsMax = 2000;
const heldMax = 200;

interface JobRow {
  readonly id: string;
  readonly queue: string;
  readonly operation: Operation;
  readonly component: string | null;
  readonly install_id: string | null;
  readonly install: string | null;
  readonly install_state: string | null;
  readonly app: string;
  readonly state: JobState;
  readonly created_at: Date;
  readonly started_at: Date | null;
  readonly finished_at: Date | null;
  readonly not_before: Date;
  readonly start_by: Date | null;
  readonly cancel_requested_at: Date | null;
  readonly cancelled_by: string | null;
  readonly used: number;
  readonly attempts_max: number;
  readonly returned_reason: string | null;
  readonly returned_code: string | null;
  readonly outcome: Outcome | null;
  readonly agent_id: string | null;
}

/** The jobs with these ids, with all that `why` wants to know of them. */
export async function readJobFacts(sql: Sql, ids: readonly string[]): Promise<JobFacts[]> {
  if (ids.length === 0) return [];
  const rows = await selectJobs(sql, ids.slice(0, jobsMax));
  const open = rows.filter(({ outcome }) => outcome === null);
  const installIds = [...new Set(open.flatMap(({ install_id }) => install_id ?? []))];
  const holders = [...new Set(open.flatMap(({ agent_id }) => agent_id ?? []))];
  const queues = [...new Set(open.map(({ queue }) => queue))];
  const [holds, agents, heads] = await Promise.all([
    readHolds(sql, installIds),
    readAgents(sql, queues, holders),
    readQueues(
      sql,
      open.filter(({ state }) => state === "queued"),
    ),
  ]);
  return rows.map((row) => ({
    ...namesOf(row),
    app: row.app,
    state: row.state,
    createdAt: row.created_at.toISOString(),
    startedAt: row.started_at?.toISOString() ?? null,
    finishedAt: row.finished_at?.toISOString() ?? null,
    notBefore: row.not_before.toISOString(),
    startBy: row.start_by?.toISOString() ?? null,
    cancel: row.cancel_requested_at && {
      at: row.cancel_requested_at.toISOString(),
      by: row.cancelled_by,
    },
    attempts: { used: row.used, max: row.attempts_max },
    returned:
      row.returned_reason === null
        ? null
        : { reason: row.returned_reason, code: row.returned_code },
    outcome: row.outcome && {
      code: row.outcome.code ?? null,
      message: row.outcome.message ?? null,
    },
    hold: (row.install_id !== null && holds.get(row.install_id)) || null,
    leaving: row.install_state === "deleting" || row.install_state === "deleted",
    holder: agents.find(({ facts }) => facts.id === row.agent_id)?.facts ?? null,
    queue: {
      name: row.queue,
      ...queueAgents(agents, row.queue, row.queue === buildQueue ? null : row.install),
      ...(heads.get(row.id) ?? { ahead: row.state === "queued" ? null : 0, first: [] }),
    },
  }));
}

function selectJobs(sql: Sql, ids: readonly string[]): Promise<JobRow[]> {
  return sql.query<JobRow>(
    `select j.id, j.queue, j.operation, j.component, j.install_id, i.name as install,
            i.state as install_state, a.name as app, j.state, j.created_at, j.started_at, j.finished_at,
            j.not_before, j.start_by, j.cancel_requested_at, j.losses + j.retries as used, j.attempts_max,
            j.returned_reason, j.outcome, j.agent_id,
            case when j.cancel_requested_at is not null then (
              select ${actorName("e.actor")} from events e
              where e.job_id = j.id and e.kind = 'job.cancel_requested' order by e.id limit 1) end as cancelled_by,
            -- An agent that refuses a job tells why, right before the job is queued again.
            case when j.state = 'queued' and j.n > 0 then (
              select e.code from (
                select kind, data ->> 'code' as code, row_number() over (order by id desc) as place from events
                where job_id = j.id and kind in ('agent.refusal', 'job.queued') order by id desc limit 2) e
              where e.place = 2 and e.kind = 'agent.refusal') end as returned_code
     from jobs j join apps a on a.id = j.app_id left join installs i on i.id = j.install_id
     where j.id = any($1)`,
    [ids],
  );
}

/** What holds installs, by id. */
export async function readHolds(sql: Sql, ids: readonly string[]): Promise<Map<string, HoldFacts>> {
  if (ids.length === 0) return new Map();
  const [rows, underWay] = await Promise.all([
    sql.query<{
      id: string;
      name: string;
      paused_at: Date | null;
      pause_reason: string | null;
      by: string | null;
      recall_since: Date | null;
      jobs_max: number | null;
    }>(
      `select id, name, paused_at, pause_reason, ${actorName("paused_by")} as by, recall_since, jobs_max
       from installs where id = any($1)`,
      [ids],
    ),
    sql.query<NameRow & { install_id: string }>(
      `select j.id, j.operation, j.component, i.name as install, j.state, j.created_at, j.started_at,
              j.install_id
       from jobs j join installs i on i.id = j.install_id
       where j.install_id = any($1) and j.queue = j.install_id and j.agent_id is not null
         and j.state not in ('succeeded', 'failed', 'cancelled') limit $2`,
      [ids, heldMax],
    ),
  ]);
  const jobs = Map.groupBy(underWay, (row) => row.install_id);
  return new Map(
    rows.map((row) => [
      row.id,
      {
        install: row.name,
        pause: row.paused_at && {
          reason: row.pause_reason ?? "",
          by: row.by ?? "",
          since: row.paused_at.toISOString(),
        },
        restoredAt: row.recall_since?.toISOString() ?? null,
        jobsMax: row.jobs_max,
        underWay: (jobs.get(row.id) ?? []).map(namesOf),
      },
    ]),
  );
}

interface KnownAgent {
  readonly queue: string;
  readonly facts: AgentFacts;
}

/** Agents that serve these queues (the newest revoked one of an install too), and those with these ids. */
export async function readAgents(
  sql: Sql,
  queues: readonly string[],
  ids: readonly string[] = [],
): Promise<KnownAgent[]> {
  const rows = await sql.query<{
    id: string;
    queue: string;
    install: string | null;
    connected: boolean;
    seen_at: Date | null;
    draining_at: Date | null;
    drain_reason: string | null;
    revoked_at: Date | null;
    slots: number | null;
  }>(
    `select a.id, coalesce(a.install_id, $4) as queue, i.name as install, a.connection is not null as connected,
            a.seen_at, a.draining_at, a.drain_reason, a.revoked_at, a.slots
     from agents a left join installs i on i.id = a.install_id
     where a.id in (
       (select id from agents where id = any($2))
       union (select id from agents where install_id = any($1) and revoked_at is null)
       union (select last.id from unnest($1) as wanted (id) cross join lateral (
                select id from agents where install_id = wanted.id and revoked_at is not null
                order by revoked_at desc limit 1) last)
       union (select id from agents where $4 = any($1) and role = 'build' and revoked_at is null
              order by connection is null, created_at desc limit $3))
     order by a.created_at desc`,
    [queues, ids, agentsMax, buildQueue],
  );
  const holds = await sql.query<NameRow & { agent_id: string }>(
    `select j.id, j.operation, j.component, i.name as install, j.state, j.created_at, j.started_at, j.agent_id
     from jobs j left join installs i on i.id = j.install_id
     where j.agent_id = any($1) limit $2`,
    [rows.map(({ id }) => id), heldMax],
  );
  const held = Map.groupBy(holds, (row) => row.agent_id);
  return rows.map((row) => ({
    queue: row.queue,
    facts: {
      id: row.id,
      install: row.install,
      connected: row.connected,
      seenAt: row.seen_at?.toISOString() ?? null,
      draining: row.draining_at && {
        reason: row.drain_reason ?? "",
        since: row.draining_at.toISOString(),
      },
      revokedAt: row.revoked_at?.toISOString() ?? null,
      slots: row.slots,
      holds: (held.get(row.id) ?? []).map(namesOf),
    },
  }));
}

/** Who serves a queue, of those that were read. */
export function queueAgents(
  known: readonly KnownAgent[],
  queue: string,
  install: string | null,
): QueueAgents {
  const all = known.filter((agent) => agent.queue === queue).map(({ facts }) => facts);
  const agents = all.filter(({ revokedAt }) => revokedAt === null);
  const last = all.find(({ revokedAt }) => revokedAt !== null);
  const replaced =
    agents.length === 0 && install !== null && last?.revokedAt
      ? { id: last.id, revokedAt: last.revokedAt }
      : null;
  return { install, agents, replaced };
}

/** Where each queued job stands in its queue, of those that could be begun now. */
async function readQueues(
  sql: Sql,
  jobs: readonly JobRow[],
): Promise<Map<string, Pick<JobFacts["queue"], "ahead" | "first">>> {
  const places = new Map<string, Pick<JobFacts["queue"], "ahead" | "first">>();
  for (const [queue, own] of Map.groupBy(jobs, (job) => job.queue)) {
    const rows = await sql.query<NameRow & { place: number; wanted: boolean }>(
      `select j.id, j.operation, j.component, i.name as install, j.state, j.created_at, j.started_at,
              place, wanted
       from (
         select *, count(*) filter (where ready) over (order by priority desc, turn, created_at, id
                     rows between unbounded preceding and 1 preceding) as place
         from (select id, operation, component, install_id, state, created_at, started_at, priority, turn,
                      id = any($2) as wanted,
                      not_before <= clock_timestamp() and not exists (
                        select 1 from installs where id = jobs.install_id
                          and (paused_at is not null or recall_since is not null)) as ready
               from jobs where queue = $1 and state = 'queued'
               order by priority desc, turn, created_at, id limit $3) head) j
       left join installs i on i.id = j.install_id
       where wanted or (ready and place < $4)
       order by place`,
      [queue, own.map(({ id }) => id), queueLookMax, queueNamesMax],
    );
    for (const row of rows.filter(({ wanted }) => wanted)) {
      const before = rows.filter(({ place, id }) => place < row.place && id !== row.id);
      places.set(row.id, {
        ahead: row.place,
        first: before.slice(0, queueNamesMax).map(namesOf),
      });
    }
  }
  return places;
}

interface NameRow {
  readonly id: string;
  readonly operation: Operation;
  readonly component: string | null;
  readonly install: string | null;
  readonly state: string;
  readonly created_at: Date;
  readonly started_at: Date | null;
}

function namesOf(row: NameRow): JobName {
  const { id, operation, component, install, state } = row;
  const since = (state === "queued" ? row.created_at : row.started_at)?.toISOString() ?? null;
  return { id, operation, component, install, state, since };
}
