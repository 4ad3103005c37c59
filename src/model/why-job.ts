/** Why a job is where it is. Pure: every state of the job machine, and every kind of wait in it. */
import type { JobState } from "./job.ts";
import {
  endSentence,
  type FirstCause,
  link,
  tellCause,
  tellInstant,
  tellSince,
  type Why,
} from "./why.ts";
import {
  type AgentFacts,
  type JobName,
  nameAgent,
  nameJob,
  offlineAgent,
  type QueueAgents,
  replacedAgent,
  waitsForAgents,
} from "./why-agent.ts";
import { type HoldFacts, waitForLimit, waitsForHold } from "./why-hold.ts";

export interface JobFacts extends JobName {
  readonly app: string;
  readonly state: JobState;
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly finishedAt: string | null;
  /** No attempt before this. */
  readonly notBefore: string;
  readonly startBy: string | null;
  readonly cancel: { readonly at: string; readonly by: string | null } | null;
  readonly attempts: { readonly used: number; readonly max: number };
  /** Why it went back to the queue the last time; the code is that of an agent which refused it. */
  readonly returned: { readonly reason: string; readonly code: string | null } | null;
  readonly outcome: { readonly code: string | null; readonly message: string | null } | null;
  /** Null for a job of no install. */
  readonly hold: HoldFacts | null;
  /** The install is being removed. */
  readonly leaving: boolean;
  /** The agent that holds it; null in the queue and after its end. */
  readonly holder: AgentFacts | null;
  readonly queue: QueueAgents & {
    readonly name: string;
    /** Jobs before it that could be begun now; null when there are more than were counted. */
    readonly ahead: number | null;
    /** The first of them. */
    readonly first: readonly JobName[];
  };
}

/** Why this job is where it is. */
export function whyJob(job: JobFacts, now: Date): Why {
  switch (job.state) {
    case "queued":
      return whyQueued(job, now);
    case "offered":
    case "running":
      return whyHeld(job);
    case "unreachable":
      return whyUnreachable(job);
    case "succeeded":
      return tell(job, `${nameJob(job)} succeeded.`, { since: job.finishedAt });
    case "failed":
      return whyFailed(job);
    case "cancelled":
      return whyCancelled(job);
  }
}

/** The failure of a job, as others refer to it; null when it did not fail. */
export function causeOf(
  job: Pick<JobFacts, "id" | "state" | "finishedAt" | "createdAt" | "outcome">,
): FirstCause | null {
  if (job.state !== "failed" && job.state !== "cancelled") return null;
  return {
    jobId: job.id,
    code: job.outcome?.code ?? job.state,
    message: job.outcome?.message ?? null,
    at: job.finishedAt ?? job.createdAt,
  };
}

/** The command that tries a failed job again. */
export function tryAgain(job: Pick<JobFacts, "operation" | "install" | "app" | "leaving">): string {
  if (job.install === null || job.operation === "build") return `\`landfall sync\` of ${job.app}`;
  return job.leaving
    ? `\`landfall installs delete ${job.install}\``
    : `\`landfall deploy ${job.install}\``;
}

function whyQueued(job: JobFacts, now: Date): Why {
  const { hold, queue } = job;
  const waits: Why[] = hold ? waitsForHold(hold, queue.agents) : [];
  if (job.returned?.code === "older_epoch_alive") waits.push(olderExecutor(job, job.returned));
  else if (Date.parse(job.notBefore) > now.getTime()) waits.push(backoff(job));
  waits.push(...waitsForAgents(queue));
  const limit = hold && queue.install === hold.install ? waitForLimit(hold) : null;
  if (limit) waits.push(limit);
  if (waits.length === 0 || queue.ahead !== 0) waits.push(turn(job));
  const [first] = waits;
  const deadline =
    job.startBy === null || hold?.pause || hold?.restoredAt
      ? ""
      : ` It fails when nothing began it by ${tellInstant(job.startBy)}.`;
  return tell(job, `${nameJob(job)} waits in the queue: ${first?.summary ?? ""}${deadline}`, {
    because: waits,
    since: job.createdAt,
  });
}

function whyHeld(job: JobFacts): Why {
  const { holder } = job;
  const where = holder ? ` ${nameAgent(holder)}` : " its agent";
  const doing =
    job.state === "offered"
      ? `is on its way to${where}${tellSince(job.since)}, and begins within moments`
      : `runs on${where}${tellSince(job.startedAt)}${attemptOf(job)}`;
  const waits = cancelWait(job);
  if (holder?.revokedAt) waits.push(replacedAgent(holder, job.queue));
  else if (holder && !holder.connected) waits.push(offlineAgent(holder));
  return tell(job, `${nameJob(job)} ${doing}.`, {
    because: waits,
    since: job.startedAt ?? job.since,
  });
}

function whyUnreachable(job: JobFacts): Why {
  const { holder } = job;
  const waits: Why[] = [];
  if (!holder) waits.push(...waitsForAgents({ ...job.queue, agents: [] }));
  else if (holder.revokedAt) waits.push(replacedAgent(holder, job.queue));
  else if (!holder.connected) waits.push(offlineAgent(holder));
  else waits.push(backAgent(holder));
  waits.push(...cancelWait(job));
  const name = holder ? nameAgent(holder) : "its agent";
  return tell(
    job,
    `${nameJob(job)} is unreachable: ${name} fell silent; what runs there goes on, and nothing else of it starts meanwhile.`,
    { because: waits, since: holder?.seenAt ?? job.since },
  );
}

function whyFailed(job: JobFacts): Why {
  const cause = causeOf(job);
  const tried = job.attempts.used > 1 ? ` after ${job.attempts.used} attempts` : "";
  const hint = hints[cause?.code ?? ""] ?? "Correct the cause";
  return tell(job, `${nameJob(job)} failed${tried}: ${cause ? tellCause(cause) : ""}`, {
    since: job.finishedAt,
    firstCause: cause,
    unblock: [
      `${hint}, then try again: ${tryAgain(job)}.`,
      `Its log: \`landfall logs ${job.id}\`.`,
    ],
  });
}

function whyCancelled(job: JobFacts): Why {
  const who = job.cancel?.by ?? "somebody";
  const message = `Cancelled by ${who}${job.cancel ? ` at ${tellInstant(job.cancel.at)}` : ""}.`;
  const cause = causeOf(job);
  return tell(job, `${nameJob(job)} was cancelled by ${who}.`, {
    since: job.finishedAt,
    firstCause: cause && { ...cause, message: cause.message ?? message },
    unblock: [`Try again: ${tryAgain(job)}.`],
  });
}

/** What helps where the outcome's code says it. */
const hints: Readonly<Record<string, string>> = {
  not_started: "See that its agent is connected and has room (`landfall agents`)",
  timed_out: "Find out what took so long",
  silent: "See whether its machine is overloaded",
  lost: "See whether its machine restarts or runs out of memory",
  unavailable: "See that what it needs can be reached",
  missing_tool: "Install what is missing on the machine of its agent",
  bad_artifact: "Build it again",
};

function tell(
  job: JobFacts,
  summary: string,
  rest: Pick<Why, "since"> & Partial<Pick<Why, "because" | "unblock" | "firstCause">>,
): Why {
  const text = summary.charAt(0).toUpperCase() + summary.slice(1);
  return link({ subject: { kind: "job", id: job.id }, state: job.state, summary: text, ...rest });
}

function attemptOf({ attempts }: JobFacts): string {
  return attempts.used === 0 ? "" : `, attempt ${attempts.used + 1} of ${attempts.max}`;
}

function cancelWait(job: JobFacts): Why[] {
  if (!job.cancel) return [];
  const { at, by } = job.cancel;
  const when = job.state === "unreachable" ? "as soon as its agent is back" : "after a grace";
  return [
    link({
      subject: { kind: "job", id: job.id },
      wait: "cancel",
      state: "cancelling",
      summary: `${by ?? "Somebody"} asked it to stop at ${tellInstant(at)}; it is ended ${when}.`,
      since: at,
      unblock: ["Nothing to do: it ends as cancelled once its executor is gone."],
    }),
  ];
}

function olderExecutor(job: JobFacts, { reason }: { reason: string }): Why {
  return link({
    subject: { kind: "job", id: job.id },
    wait: "older_executor",
    state: "fenced",
    summary: `An executor of an older try of ${job.component ?? "the sandbox"} is still alive there, and two must never be: ${endSentence(reason)}`,
    unblock: ["Nothing to do if it ends; otherwise end that process on the agent's machine."],
  });
}

function backoff(job: JobFacts): Why {
  const { used, max } = job.attempts;
  const reason = job.returned ? ` ${endSentence(job.returned.reason)}` : "";
  return link({
    subject: { kind: "job", id: job.id },
    wait: "backoff",
    state: "backoff",
    summary: `Its next attempt (${Math.min(used + 1, max)} of ${max}) is not before ${tellInstant(job.notBefore)}.${reason}`,
    unblock: [`Nothing to do: it is tried again at ${tellInstant(job.notBefore)}.`],
  });
}

function turn({ queue, createdAt }: JobFacts): Why {
  const whose =
    queue.install === null ? "the queue of the build agents" : `the queue of ${queue.install}`;
  const first = queue.first.map(nameJob).slice(0, 3).join(", ");
  const summary =
    queue.ahead === 0
      ? `It is next in ${whose}; an agent takes it within moments.`
      : `${queue.ahead ?? "Very many"} ${queue.ahead === 1 ? "job is" : "jobs are"} before it in ${whose}${first ? `, first ${first}` : ""}.`;
  return link({
    subject: { kind: "queue", id: queue.name },
    wait: "turn",
    state: "queued",
    summary,
    since: createdAt,
    unblock: [
      queue.ahead === 0
        ? "Nothing to do: it begins within moments."
        : "Nothing to do: its turn comes. More slots for the agent make it come sooner.",
    ],
  });
}

function backAgent(agent: AgentFacts): Why {
  return link({
    subject: { kind: "agent", id: agent.id },
    wait: "agent_back",
    state: "connected",
    summary: `${nameAgent(agent)} is connected again, and is about to tell what became of it.`,
    since: agent.seenAt,
    unblock: ["Nothing to do: the agent tells with its next message."],
  });
}
