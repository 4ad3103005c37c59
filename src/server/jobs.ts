/** What people and agents ask of jobs, around the job machine: each in one transaction, with its consequences. */
import { Fault } from "../model/fault.ts";
import type { AgentId } from "../model/ids.ts";
import type { JobKey } from "../protocol/job-key.ts";
import type { ServerContext } from "./context.ts";
import type { Sql } from "./database.ts";
import {
  adoptJob,
  expireLeases,
  expireStarts,
  loseJob,
  nackJob,
  requestCancel,
} from "./job-machine.ts";
import { settleEnded } from "./outcomes.ts";

/** Cancels a job: at once in the queue, otherwise by asking its agent, also when that is offline now. */
export async function cancelJob(
  context: ServerContext,
  actor: string,
  jobId: string,
): Promise<void> {
  const queue = await context.database.transaction(actor, async (sql) => {
    const [job] = await sql.query<{ queue: string }>("select queue from jobs where id = $1", [
      jobId,
    ]);
    if (!job)
      throw new Fault("not_found", `Expected a job, but there is none called \`${jobId}\`.`);
    if (!(await requestCancel(sql, jobId))) {
      throw new Fault("conflict", `Expected an unfinished job, but \`${jobId}\` has ended.`);
    }
    await settleEnded(context, sql, jobId);
    return job.queue;
  });
  context.wake.notify(`jobs:${queue}`);
  context.wake.notify("reconcile");
  context.wake.notify("live");
}

/** Takes an agent's word that nothing of a job is left. */
export async function takeLoss(
  context: ServerContext,
  agentId: AgentId,
  key: JobKey,
  reason: string,
): Promise<void> {
  await context.database.transaction(`agent:${agentId}`, (sql) =>
    settleLoss(context, sql, agentId, key, reason),
  );
  context.wake.notify("reconcile");
  context.wake.notify("live");
}

/** The same within a transaction of the caller's. */
export async function settleLoss(
  context: ServerContext,
  sql: Sql,
  agentId: AgentId,
  key: JobKey,
  reason: string,
): Promise<void> {
  // A job of the agent that this one replaced: it answers for it now.
  await adoptJob(sql, agentId, key);
  if (await loseJob(sql, agentId, key, reason)) await settleEnded(context, sql, key.jobId);
}

/**
 * Takes it from an agent's journal that a job left no trace. One that was offered and never accepted did
 * not reach the agent, which writes its journal before it launches: nothing was tried, so nothing counts.
 */
export async function settleNoTrace(
  context: ServerContext,
  sql: Sql,
  agentId: AgentId,
  key: JobKey,
): Promise<void> {
  if (await nackJob(sql, agentId, key, "The offer did not reach its agent.")) {
    return settleEnded(context, sql, key.jobId);
  }
  await settleLoss(context, sql, agentId, key, "The agent came back without a trace of it.");
}

/** Deals with leases and limits that lapsed; called on a timer by every server. */
export async function sweepLeases(context: ServerContext): Promise<void> {
  const moved = await context.database.transaction("server", async (sql) => {
    const ids = [...(await expireLeases(sql)), ...(await expireStarts(sql))];
    for (const id of ids) await settleEnded(context, sql, id);
    return ids.length;
  });
  if (moved > 0) context.wake.notify("live");
}
