/**
 * The rules of the job machine, pure: what each step makes of a job, or that it is refused. The picture
 * is at the head of `server/job-machine.ts`, which does the same in SQL, one guarded statement a step;
 * a property test drives both with the same steps and compares. The model check explores these.
 *
 * Invariants: a job has an agent exactly while it is offered, running or unreachable; the epoch rises
 * with every offer and never falls; an ended job never changes; only the agent that holds the newest
 * epoch moves it, or a person who replaced that agent.
 */
import { compareEpochs, type Epoch, isFinished, type JobState, type OutcomeCode } from "./job.ts";

/** What the rules need to know of a job. */
export interface JobRecord {
  readonly state: JobState;
  readonly epoch: Epoch;
  /** The agent that may be running it; null outside of offered, running and unreachable. */
  readonly agent: string | null;
  readonly cancelRequested: boolean;
  /** An executor of it has run: its limit to start is kept, for ever. */
  readonly begun: boolean;
  /** Attempts that are used up: executors that vanished, and failures worth another attempt. */
  readonly losses: number;
  readonly retries: number;
  readonly attemptsMax: number;
  readonly retryOn: readonly OutcomeCode[];
  /** Any agent of its queue may run it: build and provision jobs. */
  readonly shared: boolean;
  readonly code: OutcomeCode | null;
}

interface ByAgent {
  readonly agent: string;
  readonly epoch: Epoch;
}

export type JobStep =
  /** To the agent that serves the queue; `generation` is the install's now. */
  | { readonly type: "offer"; readonly agent: string; readonly generation: number }
  | ({ readonly type: "start" } & ByAgent)
  /** It could not take it now; nothing was tried. */
  | ({ readonly type: "nack" } & ByAgent)
  /** No trace of the executor and no outcome. */
  | ({ readonly type: "lose" } & ByAgent)
  | ({ readonly type: "renew" } & ByAgent)
  | ({
      readonly type: "finish";
      readonly status: "succeeded" | "failed" | "cancelled";
      readonly code: OutcomeCode | null;
    } & ByAgent)
  /** The lease lapsed. */
  | { readonly type: "silence" }
  | { readonly type: "cancel" }
  /** The limit to start is over, and no executor of it has run yet. */
  | { readonly type: "expire" }
  /** A person replaced the agent; the new one found the executor. */
  | {
      readonly type: "adopt";
      readonly from: string;
      readonly agent: string;
      readonly epoch: Epoch;
    };

/** The job after a step; null when the step is refused and changes nothing. */
export function stepJob(job: JobRecord, step: JobStep): JobRecord | null {
  switch (step.type) {
    case "offer":
      return offerJob(job, step.agent, step.generation);
    case "start":
      return holds(job, step, ["offered"]) ? run(job) : null;
    case "renew":
      return holds(job, step, leasedStates) ? run(job) : null;
    case "nack":
      return holds(job, step, ["offered"]) ? giveBack(job, { counts: false }) : null;
    case "lose":
      return holds(job, step, leasedStates) ? giveBack(job, { counts: true }) : null;
    case "finish":
      return holds(job, step, leasedStates) ? finishJob(job, step.status, step.code) : null;
    case "silence":
      return silenceJob(job);
    case "cancel":
      return cancelJob(job);
    case "expire":
      return job.state === "queued" && !job.begun ? end(job, "failed", "not_started") : null;
    case "adopt":
      return holds(job, { agent: step.from, epoch: step.epoch }, leasedStates)
        ? { ...run(job), agent: step.agent }
        : null;
  }
}

/** States in which an agent may be running the job. */
export const leasedStates: readonly JobState[] = ["offered", "running", "unreachable"];

/** Seconds before the next attempt, after so many that are used up. */
export function backoffSeconds(
  policy: { readonly backoffSeconds: number; readonly backoffSecondsMax: number },
  used: number,
): number {
  return Math.min(policy.backoffSecondsMax, policy.backoffSeconds * 2 ** Math.max(0, used - 1));
}

function offerJob(job: JobRecord, agent: string, generation: number): JobRecord | null {
  if (job.state !== "queued" || generation < job.epoch.generation) return null;
  return { ...job, state: "offered", agent, epoch: { generation, n: job.epoch.n + 1 } };
}

function holds(job: JobRecord, { agent, epoch }: ByAgent, states: readonly JobState[]): boolean {
  return states.includes(job.state) && job.agent === agent && compareEpochs(job.epoch, epoch) === 0;
}

function run(job: JobRecord): JobRecord {
  return { ...job, state: "running", begun: true };
}

/** Back to the queue, unless a cancel was waiting or the attempts are used up. */
function giveBack(job: JobRecord, { counts }: { counts: boolean }): JobRecord {
  const losses = job.losses + (counts ? 1 : 0);
  if (job.cancelRequested) return end({ ...job, losses }, "cancelled", "cancelled");
  if (counts && losses + job.retries >= job.attemptsMax) {
    return end({ ...job, losses }, "failed", "lost");
  }
  return { ...job, state: "queued", agent: null, losses };
}

/** A failure that the policy names is another attempt while there are some left. */
function finishJob(
  job: JobRecord,
  status: "succeeded" | "failed" | "cancelled",
  code: OutcomeCode | null,
): JobRecord {
  const retries = job.retries + 1;
  const isWorthAnother =
    status === "failed" &&
    code !== null &&
    job.retryOn.includes(code) &&
    !job.cancelRequested &&
    job.losses + retries < job.attemptsMax;
  if (isWorthAnother) return { ...job, state: "queued", agent: null, begun: true, retries };
  return end({ ...job, begun: true }, status, code);
}

/** Silence never hands on an install's job; a shared one goes back to its queue. */
function silenceJob(job: JobRecord): JobRecord | null {
  if (job.state !== "offered" && job.state !== "running") return null;
  return job.shared ? giveBack(job, { counts: true }) : { ...job, state: "unreachable" };
}

function cancelJob(job: JobRecord): JobRecord | null {
  if (isFinished(job.state)) return null;
  const asked = { ...job, cancelRequested: true };
  return job.state === "queued" ? end(asked, "cancelled", "cancelled") : asked;
}

function end(
  job: JobRecord,
  state: "succeeded" | "failed" | "cancelled",
  code: OutcomeCode | null,
): JobRecord {
  return { ...job, state, code, agent: null };
}
