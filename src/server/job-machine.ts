/**
 * The job machine: how a job comes to an agent, and how it ends.
 *
 *            offer             start            finish
 *  queued ---------> offered ---------> running ---------> succeeded | failed | cancelled
 *     ^  \              |                  |  ^                                     ^
 *     |   \-- cancel ---|------------------|--|-------------------------------------+
 *     +-- nack ---------+          silence |  | renew, agent back: same lease, same epoch
 *     |                                    v  |
 *     |                               unreachable -- finish (it had ended meanwhile) --> …
 *     |                                    |
 *     +------------- lose -----------------+  no trace of it: epoch + 1, or failed
 *                                             when its attempts are used up
 *
 * Silence never hands on an install's job: `silence` makes it unreachable, and only its own agent's
 * word (`renew`, `finish`, `lose`) moves it again. A build or provision job, which any agent of its
 * queue may run, goes back to the queue instead.
 *
 * Invariants: no other file writes `jobs.state`; every transition is one statement, guarded by state,
 * epoch and agent; time is the database's clock; a trigger records each transition in `events`.
 */
import type { AgentId, JobId } from "../model/ids.ts";
import type { Operation, Outcome } from "../model/job.ts";
import type { JobKey } from "../protocol/job-key.ts";
import type { Sql } from "./database.ts";

/** How long an agent may be silent before people are told. */
export const leaseSeconds = 30;
/** The queue that the build agent serves; an install's queue is its id. */
export const buildQueue = "build";

export interface NewJob {
  readonly id: JobId;
  readonly queue: string;
  readonly operation: Operation;
  readonly appId: string;
  readonly installId: string | null;
  readonly component: string | null;
  readonly manifest: string;
  readonly manifestDigest: string;
  readonly fingerprint: string | null;
  readonly artifactDigest: string | null;
  readonly deploy: number;
  readonly generation: number;
  /** Higher goes first within a queue. */
  readonly priority: number;
}

export interface OfferedJob {
  readonly id: JobId;
  readonly operation: Operation;
  readonly install_id: string | null;
  readonly component: string | null;
  readonly manifest: string;
  readonly manifest_digest: string;
  readonly generation: number;
  readonly n: number;
}

/** Queues jobs, many in one statement. A second unfinished job of a component is silently left out. */
export async function queueJobs(sql: Sql, jobs: readonly NewJob[]): Promise<JobId[]> {
  const rows = await sql.query<{ id: JobId }>(
    `insert into jobs (id, queue, operation, app_id, install_id, component, manifest, manifest_digest,
                       fingerprint, artifact_digest, deploy, generation, priority)
     select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                          $7::text[], $8::text[], $9::text[], $10::text[], $11::int[], $12::int[], $13::int[])
     on conflict do nothing
     returning id`,
    [
      jobs.map((job) => job.id),
      jobs.map((job) => job.queue),
      jobs.map((job) => job.operation),
      jobs.map((job) => job.appId),
      jobs.map((job) => job.installId),
      jobs.map((job) => job.component),
      jobs.map((job) => job.manifest),
      jobs.map((job) => job.manifestDigest),
      jobs.map((job) => job.fingerprint),
      jobs.map((job) => job.artifactDigest),
      jobs.map((job) => job.deploy),
      jobs.map((job) => job.generation),
      jobs.map((job) => job.priority),
    ],
  );
  return rows.map((row) => row.id);
}

/** Offers the oldest queued jobs to an agent and begins a new epoch of each, in one statement. */
export function offerJobs(
  sql: Sql,
  agentId: AgentId,
  queue: string,
  limit: number,
): Promise<OfferedJob[]> {
  return sql.query<OfferedJob>(
    `update jobs set state = 'offered', agent_id = $1, n = n + 1,
       lease_expires_at = clock_timestamp() + make_interval(secs => $4)
     where id in (
       select id from jobs
       where queue = $2 and state = 'queued' and not_before <= clock_timestamp()
       order by priority desc, created_at, id limit $3
       for update skip locked)
     returning id, operation, install_id, component, manifest, manifest_digest, generation, n`,
    [agentId, queue, limit, leaseSeconds],
  );
}

/** The agent has launched it. False when this epoch is not on offer to this agent. */
export async function startJob(sql: Sql, agentId: AgentId, key: JobKey): Promise<boolean> {
  const rows = await sql.query(
    `update jobs set state = 'running', started_at = coalesce(started_at, clock_timestamp()),
       lease_expires_at = clock_timestamp() + make_interval(secs => $5)
     where id = $1 and generation = $2 and n = $3 and agent_id = $4 and state = 'offered'
     returning id`,
    [key.jobId, key.epoch.generation, key.epoch.n, agentId, leaseSeconds],
  );
  return rows.length > 0;
}

/** The agent could not take it now: back to the queue, a little later. Nothing was tried, so nothing counts. */
export async function nackJob(
  sql: Sql,
  agentId: AgentId,
  key: JobKey,
  reason: string,
): Promise<boolean> {
  return returnJob(sql, agentId, key, { states: ["offered"], counts: false, reason });
}

/** No trace of its executor is left, and no outcome: the next epoch, or failed. */
export async function loseJob(
  sql: Sql,
  agentId: AgentId,
  key: JobKey,
  reason: string,
): Promise<boolean> {
  const states = ["offered", "running", "unreachable"];
  return returnJob(sql, agentId, key, { states, counts: true, reason });
}

async function returnJob(
  sql: Sql,
  agentId: AgentId,
  key: JobKey,
  { states, counts, reason }: { states: readonly string[]; counts: boolean; reason: string },
): Promise<boolean> {
  // A cancel that was waiting for the agent is fulfilled here: nothing of the job is left to stop.
  const rows = await sql.query(
    `update jobs set agent_id = null, lease_expires_at = null,
       state = case when cancel_requested_at is not null then 'cancelled'
                    when $7 and losses + 1 >= attempts_max then 'failed' else 'queued' end,
       losses = losses + $7::int,
       not_before = clock_timestamp() + make_interval(secs => 0.25 * power(2, least(n, 6))),
       finished_at = case when cancel_requested_at is not null or ($7 and losses + 1 >= attempts_max)
                          then clock_timestamp() end,
       outcome = case when cancel_requested_at is not null
                      then jsonb_build_object('status', 'cancelled', 'code', 'cancelled')
                      when $7 and losses + 1 >= attempts_max
                      then jsonb_build_object('status', 'failed', 'code', 'lost',
                             'message', 'Tried ' || losses + 1 || ' times. ' || $6::text) end
     where id = $1 and generation = $2 and n = $3 and agent_id = $4 and state = any($5)
     returning id`,
    [key.jobId, key.epoch.generation, key.epoch.n, agentId, states, reason, counts],
  );
  return rows.length > 0;
}

/** Renews leases, many in one statement; a job that was unreachable is running again, same epoch. */
export async function renewLeases(
  sql: Sql,
  agentId: AgentId,
  keys: readonly JobKey[],
): Promise<void> {
  await sql.query(
    `update jobs set lease_expires_at = clock_timestamp() + make_interval(secs => $5),
       state = 'running', started_at = coalesce(started_at, clock_timestamp())
     from unnest($1::text[], $2::int[], $3::int[]) as held (id, generation, n)
     where jobs.id = held.id and jobs.generation = held.generation and jobs.n = held.n
       and jobs.agent_id = $4 and jobs.state in ('offered', 'running', 'unreachable')`,
    [
      keys.map((key) => key.jobId),
      keys.map((key) => key.epoch.generation),
      keys.map((key) => key.epoch.n),
      agentId,
      leaseSeconds,
    ],
  );
}

/** Ends a job with what its executor reported. Only the first report of its newest epoch counts. */
export async function finishJob(
  sql: Sql,
  agentId: AgentId,
  key: JobKey,
  outcome: Outcome,
): Promise<boolean> {
  const rows = await sql.query(
    `update jobs set state = $5, outcome = $6, agent_id = null, lease_expires_at = null,
       started_at = coalesce(started_at, clock_timestamp()), finished_at = clock_timestamp()
     where id = $1 and generation = $2 and n = $3 and agent_id = $4
       and state in ('offered', 'running', 'unreachable')
     returning id`,
    [
      key.jobId,
      key.epoch.generation,
      key.epoch.n,
      agentId,
      outcome.status,
      JSON.stringify(outcome),
    ],
  );
  return rows.length > 0;
}

/** Cancels a queued job at once; asks for it where an agent may be running it. False when it has ended. */
export async function requestCancel(sql: Sql, jobId: string): Promise<boolean> {
  const rows = await sql.query(
    `update jobs set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
       state = case when state = 'queued' then 'cancelled' else state end,
       finished_at = case when state = 'queued' then clock_timestamp() end,
       outcome = case when state = 'queued'
                      then jsonb_build_object('status', 'cancelled', 'code', 'cancelled') end
     where id = $1 and outcome is null
     returning id`,
    [jobId],
  );
  return rows.length > 0;
}

/** Deals with agents that fell silent. Returns the jobs it moved. */
export async function expireLeases(sql: Sql): Promise<JobId[]> {
  const silent = await sql.query<{ id: JobId }>(
    `update jobs set state = 'unreachable'
     where state in ('offered', 'running') and lease_expires_at < clock_timestamp() and queue <> $1
     returning id`,
    [buildQueue],
  );
  const returned = await sql.query<{ id: JobId }>(
    `update jobs set agent_id = null, lease_expires_at = null,
       losses = losses + 1,
       state = case when losses + 1 < attempts_max then 'queued' else 'failed' end,
       finished_at = case when losses + 1 >= attempts_max then clock_timestamp() end,
       outcome = case when losses + 1 >= attempts_max
                      then jsonb_build_object('status', 'failed', 'code', 'lost', 'message',
                             'Its agent fell silent ' || losses + 1 || ' times.') end
     where state in ('offered', 'running') and lease_expires_at < clock_timestamp() and queue = $1
     returning id`,
    [buildQueue],
  );
  return [...silent, ...returned].map((row) => row.id);
}

/** Lease clocks restart when a server starts: its own absence is nobody's silence. */
export async function restartLeases(sql: Sql): Promise<void> {
  await sql.query(
    `update jobs set lease_expires_at = clock_timestamp() + make_interval(secs => $1)
     where state in ('offered', 'running')`,
    [leaseSeconds],
  );
}
