/**
 * The job machine: how a job comes to an agent, and how it ends.
 *
 *            offer             start            finish
 *  queued ---------> offered ---------> running ---------> succeeded | failed | cancelled
 *   | ^ \              |                  |  ^ ^                                    ^
 *   | |  \-- cancel ---|------------------|--|-|------------------------------------+
 *   | +---- nack ------+          silence |  | | renew, agent back: same lease, same epoch
 *   | |                                   v  | | adopt, agent replaced: the new one found it, same epoch
 *   | |                              unreachable -- finish (it had ended meanwhile) --> …
 *   | |                                   |
 *   | +------------- lose ----------------+  no trace of it: epoch + 1, or failed
 *   | |                                      when its attempts are used up
 *   | +------------- finish with a failure that its policy retries: epoch + 1, after a backoff
 *   |
 *   +--------------- expire: its limit to start is over --> failed
 *
 * Silence never hands on an install's job: `silence` makes it unreachable, and only its own agent's
 * word (`renew`, `finish`, `lose`), or that of the agent which a person put in its place (`adopt`),
 * moves it again. A build or provision job, which any agent of its queue may run, goes back to the
 * queue instead.
 *
 * Invariants: no other file writes `jobs.state`; every transition is one statement, guarded by state,
 * epoch and agent; time is the database's clock; a trigger records each transition in `events`. The
 * same rules, pure, are in `model/job-rules.ts`; a test drives both and compares.
 */
import type { AgentId, JobId } from "../model/ids.ts";
import type { Epoch, Operation, Outcome, RetryPolicy } from "../model/job.ts";
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
  /** Null: it may wait for ever. */
  readonly startSeconds: number | null;
  readonly retry: RetryPolicy;
}

export interface OfferedJob {
  readonly id: JobId;
  readonly agent_id: AgentId;
  readonly operation: Operation;
  readonly install_id: string | null;
  readonly component: string | null;
  readonly manifest: string;
  readonly manifest_digest: string;
  readonly generation: number;
  readonly n: number;
}

/**
 * Queues jobs, many in one statement. A second unfinished job of a component is silently left out.
 *
 * In the queue that many installs share, turns are fair: a party's next job comes after its last one,
 * and never before the job that is at the head of the queue now.
 */
export async function queueJobs(sql: Sql, jobs: readonly NewJob[]): Promise<JobId[]> {
  const rows = await sql.query<{ id: JobId }>(
    `insert into jobs (id, queue, operation, app_id, install_id, component, manifest, manifest_digest,
                       fingerprint, artifact_digest, deploy, generation, priority, start_by,
                       attempts_max, retry_on, backoff_seconds, backoff_seconds_max, turn)
     select given.id, given.queue, operation, app_id, install_id, component, manifest, manifest_digest,
            fingerprint, artifact_digest, deploy, generation, priority,
            clock_timestamp() + make_interval(secs => start_seconds),
            attempts_max, string_to_array(retry_on, ' '), backoff_seconds, backoff_seconds_max,
            case when given.queue <> $19 then 0 else
              row_number() over (partition by given.queue, priority, coalesce(install_id, app_id) order by given.id) - 1
              + greatest(
                  (select turn from jobs
                   where queue = given.queue and state = 'queued' and priority = given.priority
                   order by turn limit 1),
                  (select max(turn) + 1 from jobs
                   where queue = given.queue and state = 'queued' and priority = given.priority
                     and party = coalesce(given.install_id, given.app_id)),
                  0) end
     from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                 $7::text[], $8::text[], $9::text[], $10::text[], $11::int[], $12::int[], $13::int[],
                 $14::float8[], $15::int[], $16::text[], $17::float8[], $18::float8[])
       as given (id, queue, operation, app_id, install_id, component, manifest, manifest_digest,
                 fingerprint, artifact_digest, deploy, generation, priority, start_seconds,
                 attempts_max, retry_on, backoff_seconds, backoff_seconds_max)
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
      jobs.map((job) => job.startSeconds),
      jobs.map((job) => job.retry.attempts),
      jobs.map((job) => job.retry.on.join(" ")),
      jobs.map((job) => job.retry.backoffSeconds),
      jobs.map((job) => job.retry.backoffSecondsMax),
      buildQueue,
    ],
  );
  return rows.map((row) => row.id);
}

/** Who asks for jobs: an agent over one connection, which must still be its newest. */
export interface Asker {
  readonly agentId: AgentId;
  readonly connection: string;
}

/** How many jobs of which queue someone asks for. */
export interface Ask extends Asker {
  readonly queue: string;
  readonly limit: number;
}

/** Offers queued jobs to one agent. */
export function offerJobs(
  sql: Sql,
  asker: Asker,
  queue: string,
  limit: number,
): Promise<OfferedJob[]> {
  return offerJobsToAll(sql, [{ ...asker, queue, limit }]);
}

/**
 * Offers queued jobs to agents of different queues and begins a new epoch of each, in one statement: by
 * priority, then by turn, then by age. Nothing goes to an agent that is revoked, draining or superseded
 * by a newer connection; nothing of an install that is paused or restored; no more at once than the
 * install allows.
 */
export function offerJobsToAll(sql: Sql, asks: readonly Ask[]): Promise<OfferedJob[]> {
  return sql.query<OfferedJob>(
    // Materialized: a join that looked twice would pick more than the limit.
    `with picked as materialized (
       select chosen.id, asked.agent_id
       from unnest($1::text[], $2::text[], $3::text[], $4::int[])
         as asked (agent_id, connection, queue, places)
       cross join lateral (
         select id from jobs
         where queue = asked.queue and state = 'queued' and not_before <= clock_timestamp()
           and exists (select 1 from agents where id = asked.agent_id and connection = asked.connection
                         and revoked_at is null and draining_at is null)
           and not exists (select 1 from installs where id = jobs.install_id
                             and (paused_at is not null or recall_since is not null))
         order by priority desc, turn, created_at, id
         limit greatest(0, least(asked.places, (
           select jobs_max - (select count(*) from jobs where queue = asked.queue and agent_id is not null)
           from installs where id = asked.queue)))
         for update skip locked) as chosen)
     update jobs set state = 'offered', agent_id = picked.agent_id, n = n + 1,
       generation = greatest(generation, (select generation from installs where id = install_id)),
       lease_expires_at = clock_timestamp() + make_interval(secs => $5)
     from picked
     where jobs.id = picked.id and jobs.state = 'queued'
     returning jobs.id, jobs.agent_id, operation, install_id, component, manifest, manifest_digest,
               generation, n`,
    [
      asks.map((ask) => ask.agentId),
      asks.map((ask) => ask.connection),
      asks.map((ask) => ask.queue),
      asks.map((ask) => ask.limit),
      leaseSeconds,
    ],
  );
}

/** The agent has launched it. False when this epoch is not on offer to this agent. */
export async function startJob(sql: Sql, agentId: AgentId, key: JobKey): Promise<boolean> {
  return (await startJobs(sql, [{ ...key, agentId }])).length > 0;
}

/** Agents have launched these, each job at most once; returns those that were on offer to them. */
export async function startJobs(sql: Sql, held: readonly HeldJob[]): Promise<JobId[]> {
  const rows = await sql.query<{ id: JobId }>(
    `with held as materialized (
       select jobs.id, told.generation, told.n, told.agent_id
       from unnest($1::text[], $2::int[], $3::int[], $4::text[]) as told (id, generation, n, agent_id)
       join jobs on jobs.id = told.id and jobs.agent_id = told.agent_id
       order by jobs.id for no key update of jobs)
     update jobs set state = 'running', started_at = coalesce(started_at, clock_timestamp()),
       lease_expires_at = clock_timestamp() + make_interval(secs => $5)
     from held
     where jobs.id = held.id and jobs.generation = held.generation and jobs.n = held.n
       and jobs.agent_id = held.agent_id and jobs.state = 'offered'
     returning jobs.id`,
    [...columnsOf(held), leaseSeconds],
  );
  return rows.map((row) => row.id);
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
    `update jobs set agent_id = null, lease_expires_at = null, returned_reason = $6,
       state = case when cancel_requested_at is not null then 'cancelled'
                    when $7 and losses + 1 + retries >= attempts_max then 'failed' else 'queued' end,
       losses = losses + $7::int,
       not_before = clock_timestamp() + make_interval(secs => case when $7
         then least(backoff_seconds_max, backoff_seconds * power(2, losses + retries))
         else 0.25 * power(2, least(n, 6)) end),
       finished_at = case when cancel_requested_at is not null
                            or ($7 and losses + 1 + retries >= attempts_max)
                          then clock_timestamp() end,
       outcome = case when cancel_requested_at is not null
                      then jsonb_build_object('status', 'cancelled', 'code', 'cancelled')
                      when $7 and losses + 1 + retries >= attempts_max
                      then jsonb_build_object('status', 'failed', 'code', 'lost',
                             'message', 'Tried ' || losses + 1 + retries || ' times. ' || $6::text) end
     where id = $1 and generation = $2 and n = $3 and agent_id = $4 and state = any($5)
     returning id`,
    [key.jobId, key.epoch.generation, key.epoch.n, agentId, states, reason, counts],
  );
  return rows.length > 0;
}

/** A job that an agent says it holds. */
export interface HeldJob extends JobKey {
  readonly agentId: AgentId;
}

/**
 * Extends the leases of running jobs, of many agents in one statement. Changes no state, so it is nobody's
 * doing; returns the jobs that need more than that (`renewLeases`), are no longer theirs, or are being
 * changed right now.
 */
export async function extendLeases(sql: Sql, held: readonly HeldJob[]): Promise<HeldJob[]> {
  const rows = await sql.query<{ id: JobId }>(
    `update jobs set lease_expires_at = clock_timestamp() + make_interval(secs => $5)
     where id in (
       select jobs.id from unnest($1::text[], $2::int[], $3::int[], $4::text[])
         as held (id, generation, n, agent_id)
       join jobs on jobs.id = held.id and jobs.generation = held.generation and jobs.n = held.n
         and jobs.agent_id = held.agent_id
       where state = 'running'
       order by jobs.id for update of jobs skip locked)
     returning id`,
    [...columnsOf(held), leaseSeconds],
  );
  const extended = new Set<string>(rows.map((row) => row.id));
  return held.filter((job) => !extended.has(job.jobId));
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

/** What the executor of a job reported at its end. */
export interface FinishedJob extends HeldJob {
  readonly outcome: Outcome;
}

/** How a report of an end was taken, with what is needed to settle it. */
export interface TakenEnd {
  readonly id: JobId;
  /** False: it is queued again. */
  readonly ended: boolean;
  readonly manifest: string;
  readonly deploy: number;
  readonly fingerprint: string | null;
}

/** Ends one job; null when the report does not count. */
export async function finishJob(
  sql: Sql,
  agentId: AgentId,
  key: JobKey,
  outcome: Outcome,
): Promise<"ended" | "retried" | null> {
  const [taken] = await finishJobs(sql, [{ ...key, agentId, outcome }]);
  if (!taken) return null;
  return taken.ended ? "ended" : "retried";
}

/**
 * Ends jobs, each named at most once, with what their executors reported; a failure that a job's policy
 * retries, and that is not the last attempt, puts it back into the queue instead. Only the first report
 * of a job's newest epoch counts: what is not returned did not.
 */
export async function finishJobs(sql: Sql, finished: readonly FinishedJob[]): Promise<TakenEnd[]> {
  const again = `said.status = 'failed' and coalesce(said.code = any(retry_on), false)
                 and cancel_requested_at is null and losses + retries + 1 < attempts_max`;
  return sql.query<TakenEnd>(
    `with said as materialized (
       select jobs.id, told.generation, told.n, told.agent_id, told.status, told.code, told.outcome
       from unnest($1::text[], $2::int[], $3::int[], $4::text[], $5::text[], $6::text[], $7::jsonb[])
         as told (id, generation, n, agent_id, status, code, outcome)
       join jobs on jobs.id = told.id and jobs.agent_id = told.agent_id
       order by jobs.id for no key update of jobs)
     update jobs set agent_id = null, lease_expires_at = null,
       started_at = coalesce(started_at, clock_timestamp()),
       state = case when ${again} then 'queued' else said.status end,
       outcome = case when ${again} then null else said.outcome end,
       finished_at = case when ${again} then null else clock_timestamp() end,
       retries = retries + (${again})::int,
       returned_reason = case when ${again}
         then 'Attempt ' || losses + retries + 1 || ' of ' || attempts_max || ' failed: '
              || said.code || coalesce(': ' || left(said.outcome ->> 'message', 2000), '')
         else returned_reason end,
       not_before = case when ${again}
         then clock_timestamp()
              + make_interval(secs => least(backoff_seconds_max, backoff_seconds * power(2, losses + retries)))
         else not_before end
     from said
     where jobs.id = said.id and jobs.generation = said.generation and jobs.n = said.n
       and jobs.agent_id = said.agent_id and jobs.state in ('offered', 'running', 'unreachable')
     returning jobs.id, jobs.outcome is not null as ended, manifest, deploy, fingerprint`,
    [
      ...columnsOf(finished),
      finished.map(({ outcome }) => outcome.status),
      finished.map(({ outcome }) => outcome.code ?? null),
      finished.map(({ outcome }) => JSON.stringify(outcome)),
    ],
  );
}

/** Ids, generations, numbers and agents: what every guard looks at. */
function columnsOf(held: readonly HeldJob[]): unknown[][] {
  return [
    held.map((job) => job.jobId),
    held.map((job) => job.epoch.generation),
    held.map((job) => job.epoch.n),
    held.map((job) => job.agentId),
  ];
}

/**
 * Cancels a queued job at once; asks for it where an agent may be running it. While its install waits for
 * what its agent tells after a restore, a queued job may have run: the wish is noted. False when it has ended.
 */
export async function requestCancel(sql: Sql, jobId: string): Promise<boolean> {
  const atOnce = `state = 'queued' and not exists (
    select 1 from installs where id = install_id and recall_since is not null)`;
  const rows = await sql.query(
    `update jobs set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
       state = case when ${atOnce} then 'cancelled' else state end,
       finished_at = case when ${atOnce} then clock_timestamp() end,
       outcome = case when ${atOnce}
                      then jsonb_build_object('status', 'cancelled', 'code', 'cancelled') end
     where id = $1 and outcome is null
     returning id`,
    [jobId],
  );
  return rows.length > 0;
}

/** Ends what was asked to stop while its install was held, and had not run after all. Gives the jobs it ended. */
export async function cancelNoted(sql: Sql, installId: string): Promise<JobId[]> {
  const rows = await sql.query<{ id: JobId }>(
    `update jobs set state = 'cancelled', finished_at = clock_timestamp(),
       outcome = jsonb_build_object('status', 'cancelled', 'code', 'cancelled')
     where install_id = $1 and state = 'queued' and cancel_requested_at is not null
     returning id`,
    [installId],
  );
  return rows.map((row) => row.id);
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
    `update jobs set agent_id = null, lease_expires_at = null, losses = losses + 1,
       returned_reason = 'Its agent fell silent.',
       state = case when cancel_requested_at is not null then 'cancelled'
                    when losses + 1 + retries >= attempts_max then 'failed' else 'queued' end,
       finished_at = case when cancel_requested_at is not null or losses + 1 + retries >= attempts_max
                          then clock_timestamp() end,
       outcome = case when cancel_requested_at is not null
                      then jsonb_build_object('status', 'cancelled', 'code', 'cancelled')
                      when losses + 1 + retries >= attempts_max
                      then jsonb_build_object('status', 'failed', 'code', 'lost', 'message',
                             'Tried ' || losses + 1 + retries || ' times. Its agent fell silent.') end
     where state in ('offered', 'running') and lease_expires_at < clock_timestamp() and queue = $1
     returning id`,
    [buildQueue],
  );
  return [...silent, ...returned].map((row) => row.id);
}

/**
 * Fails jobs that no executor has begun and whose limit to start is over; never while their install is
 * paused or restored. A job that was begun and waits for its next attempt has kept its limit.
 */
export async function expireStarts(sql: Sql): Promise<JobId[]> {
  const rows = await sql.query<{ id: JobId }>(
    `update jobs set state = 'failed', finished_at = clock_timestamp(),
       outcome = jsonb_build_object('status', 'failed', 'code', 'not_started', 'message',
         'No agent began it by ' || to_char(start_by at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
         || '.' || coalesce(' ' || returned_reason, ''))
     where state = 'queued' and started_at is null and start_by < clock_timestamp()
       and not exists (select 1 from installs where id = install_id
                         and (paused_at is not null or recall_since is not null))
     returning id`,
  );
  return rows.map((row) => row.id);
}

/**
 * Moves on the limits to start of an install's jobs by the time that it was held: a pause does not
 * count. To be called in the transaction that ends the hold, before it clears the hold's column. What
 * two holds have in common is left to the one that ends last.
 */
export async function resumeStarts(
  sql: Sql,
  installId: string,
  hold: "paused_at" | "recall_since",
): Promise<void> {
  const other = hold === "paused_at" ? "recall_since" : "paused_at";
  await sql.query(
    `update jobs set start_by = start_by
       + greatest(interval '0', coalesce(${other}, clock_timestamp()) - greatest(jobs.created_at, ${hold}))
     from installs
     where installs.id = $1 and ${hold} is not null
       and install_id = $1 and jobs.state = 'queued' and start_by is not null`,
    [installId],
  );
}

/**
 * Gives a running executor to the agent that a person put in the place of its own: same lease, same
 * epoch. Only from a revoked agent, and within the same install.
 */
export async function adoptJob(
  sql: Sql,
  agentId: AgentId,
  { jobId, epoch }: { jobId: JobId; epoch: Epoch },
): Promise<boolean> {
  const rows = await sql.query(
    `update jobs set state = 'running', agent_id = $4, started_at = coalesce(started_at, clock_timestamp()),
       lease_expires_at = clock_timestamp() + make_interval(secs => $5)
     where id = $1 and generation = $2 and n = $3 and state in ('offered', 'running', 'unreachable')
       and agent_id in (select old.id from agents old join agents own on own.install_id = old.install_id
                        where own.id = $4 and own.revoked_at is null and old.revoked_at is not null)
     returning id`,
    [jobId, epoch.generation, epoch.n, agentId, leaseSeconds],
  );
  return rows.length > 0;
}

/** A try that an agent tells of after the server was restored: the server may know an older one, or none. */
export interface RecalledTry {
  readonly key: JobKey;
  /** Null while its executor runs. */
  readonly outcome: Outcome | null;
}

/**
 * Puts an unfinished job where its agent says that it is. False when the server knows its end, a newer
 * try, or not the job.
 */
export async function recallJob(
  sql: Sql,
  agentId: AgentId,
  { key, outcome }: RecalledTry,
): Promise<boolean> {
  const rows = await sql.query(
    `update jobs set generation = $2, n = $3, outcome = $5::jsonb, state = coalesce($6, 'running'),
       agent_id = case when $6::text is null then $4 end,
       lease_expires_at = case when $6::text is null
                               then clock_timestamp() + make_interval(secs => $7) end,
       started_at = coalesce(started_at, clock_timestamp()),
       finished_at = case when $6::text is not null then clock_timestamp() end
     where id = $1 and outcome is null and (generation, n) <= ($2, $3)
     returning id`,
    [
      key.jobId,
      key.epoch.generation,
      key.epoch.n,
      agentId,
      outcome && JSON.stringify(outcome),
      outcome?.status ?? null,
      leaseSeconds,
    ],
  );
  return rows.length > 0;
}

/** Cancels what is queued for an install (for one component of it): it was made from what is no longer true. */
export async function dropQueued(
  sql: Sql,
  installId: string,
  component: string | null,
  message: string,
): Promise<void> {
  const outcome = { status: "cancelled", code: "cancelled", message } satisfies Outcome;
  await sql.query(
    `update jobs set state = 'cancelled', outcome = $3, finished_at = clock_timestamp()
     where install_id = $1 and state = 'queued' and ($2::text is null or component = $2)`,
    [installId, component, JSON.stringify(outcome)],
  );
}

/** After a restore, builds that are still to run begin a new generation; an install's jobs get its own. */
export async function raiseQueuedBuilds(sql: Sql): Promise<void> {
  await sql.query(
    "update jobs set generation = generation + 1 where state = 'queued' and install_id is null",
  );
}

/** Lease clocks restart when a server starts: its own absence is nobody's silence. */
export async function restartLeases(sql: Sql): Promise<void> {
  await sql.query(
    `update jobs set lease_expires_at = clock_timestamp() + make_interval(secs => $1)
     where state in ('offered', 'running')`,
    [leaseSeconds],
  );
}
