/** What an agent tells of its jobs. Only the agent that holds a job's newest epoch is believed. */
import type { AgentId } from "../../model/ids.ts";
import { compareEpochs, type Outcome } from "../../model/job.ts";
import { type JobEvent, lastSeqOf } from "../../protocol/events.ts";
import type { AgentFrame } from "../../protocol/frames.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import type { ServerContext } from "../context.ts";
import { recordEvent } from "../event-queue.ts";
import { loseJob, nackJob, startJob } from "../job-machine.ts";
import { takeLoss } from "../jobs.ts";
import { appendEvents } from "../log-chunks.ts";
import { settleEnded, takeOutcome } from "../outcomes.ts";

/** What is said of jobs that are held: neither the greeting, the heartbeat nor what is recalled. */
export type Report = Exclude<AgentFrame, { type: "hello" | "renew" | "recalled" }>;
/** A report of one kind. */
export type ReportOf<Type extends Report["type"]> = Extract<Report, { type: Type }>;

export interface Handled {
  /** What the agent may forget. */
  readonly ack: (JobKey & { readonly acknowledged: number }) | null;
  /** A job that no longer takes a slot of the agent. */
  readonly ended: JobKey | null;
}

/** Nothing to answer. */
export const nothing: Handled = { ack: null, ended: null };

/** Takes one report of an agent that has proved who it is, by itself (many: `report-desk.ts`). */
export function handleReport(
  context: ServerContext,
  agentId: AgentId,
  frame: Report,
): Promise<Handled> {
  switch (frame.type) {
    case "accepted":
      return handleAccepted(context, agentId, frame);
    case "refused":
      return handleRefused(context, agentId, frame);
    case "lost":
      return handleLost(context, agentId, frame);
    case "events":
      return handleEvents(context, agentId, frame);
  }
}

async function handleAccepted(
  context: ServerContext,
  agentId: AgentId,
  frame: ReportOf<"accepted">,
): Promise<Handled> {
  await context.database.transaction(`agent:${agentId}`, (sql) => startJob(sql, agentId, frame));
  context.wake.notify("live");
  return nothing;
}

async function handleRefused(
  context: ServerContext,
  agentId: AgentId,
  { job, code, reason }: ReportOf<"refused">,
): Promise<Handled> {
  context.log.warn({ agentId, job, code, reason }, "Agent refused");
  await context.database.transaction(`agent:${agentId}`, async (sql) => {
    await recordEvent(sql, {
      kind: "agent.refusal",
      actor: `agent:${agentId}`,
      jobId: job?.jobId ?? null,
      data: { code, reason: reason.slice(0, 2000) },
    });
    if (!job) return;
    // Full, or waiting for an older try to end: a matter of time. Anything else will not mend itself.
    const isPassing = code === "no_slot" || code === "older_epoch_alive";
    const back = isPassing ? nackJob : loseJob;
    if (await back(sql, agentId, job, reason.slice(0, 2000))) {
      await settleEnded(context, sql, job.jobId);
    }
  });
  context.wake.notify("live");
  return { ...nothing, ended: job };
}

async function handleLost(
  context: ServerContext,
  agentId: AgentId,
  { jobId, epoch, reason }: ReportOf<"lost">,
): Promise<Handled> {
  const key = { jobId, epoch };
  await takeLoss(context, agentId, key, reason.slice(0, 4000));
  return { ...nothing, ack: { ...key, acknowledged: 0 }, ended: key };
}

async function handleEvents(
  context: ServerContext,
  agentId: AgentId,
  { jobId, epoch, events }: ReportOf<"events">,
): Promise<Handled> {
  const key = { jobId, epoch };
  const standing = await standingOf(context, agentId, key);
  const last = events.at(-1);
  if (!last) return nothing;
  if (standing !== "held") {
    // A repetition of what is safe already, or the report of an older epoch: refused, recorded, forgotten.
    if (standing === "stale") await recordStaleReport(context, agentId, key);
    return { ...nothing, ack: { ...key, acknowledged: lastSeqOf(last) } };
  }
  const acknowledged = await appendEvents(context, key, events);
  noteProgress(context, key, events);
  const outcome = outcomeOf(events, acknowledged);
  if (outcome) await takeOutcome(context, agentId, key, outcome);
  return { ...nothing, ack: { ...key, acknowledged }, ended: outcome ? key : null };
}

/** `held`: this agent runs this epoch. `ended`: it did, and the outcome is known. `stale`: all else. */
async function standingOf(
  context: ServerContext,
  agentId: AgentId,
  key: JobKey,
): Promise<"held" | "ended" | "stale"> {
  const [job] = await context.database.query<{
    agent_id: string | null;
    generation: number;
    n: number;
    ended: boolean;
  }>("select agent_id, generation, n, outcome is not null as ended from jobs where id = $1", [
    key.jobId,
  ]);
  if (!job || compareEpochs(job, key.epoch) !== 0) return "stale";
  if (job.ended) return "ended";
  return job.agent_id === agentId ? "held" : "stale";
}

async function recordStaleReport(
  context: ServerContext,
  agentId: AgentId,
  { jobId, epoch }: JobKey,
): Promise<void> {
  await recordEvent(context.database, {
    kind: "job.stale_report",
    actor: `agent:${agentId}`,
    jobId,
    data: { epoch },
  });
}

/** The outcome that these events end with, once it is stored. */
export function outcomeOf(events: readonly JobEvent[], acknowledged: number): Outcome | null {
  const last = events.at(-1);
  return last?.type === "outcome" && last.seq <= acknowledged ? last.outcome : null;
}

/** Keeps the newest progress for people's eyes. */
export function noteProgress(
  context: ServerContext,
  { jobId }: JobKey,
  events: readonly JobEvent[],
): void {
  const progress = events.findLast((event) => event.type === "progress");
  if (!progress) return;
  const { label, done, total } = progress;
  context.progress.set(jobId, { label, done, total });
  context.wake.notify("live");
}
