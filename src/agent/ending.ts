/**
 * How the agent brings an executor to its end, without I/O: ask, ask again, and after the grace kill.
 *
 *   running ──cancel | deadline | silence──> asked ──grace over──> killed
 *
 * It is asked more than once, since a program that has just started may not listen yet.
 */
import type { Outcome } from "../model/job.ts";
import type { JobEvent } from "../protocol/events.ts";
import type { EndReason } from "./journal.ts";

const askAgainMs = 1000;
/** What a job that ran out of time still gets. */
export const timeoutGraceMs = 10_000;
/** Less for one that gives no sign of life: it has hardly heard. */
export const silenceGraceMs = 5000;

/** An ending under way, with times on the monotonic clock. */
export interface Ending {
  readonly reason: EndReason;
  readonly killAtMs: number;
  readonly askedAtMs: number | null;
}

/** What is to be done with the executor now. */
export function nextStep(ending: Ending, nowMs: number): "ask" | "end" | "wait" {
  if (nowMs >= ending.killAtMs) return "end";
  const { askedAtMs } = ending;
  return askedAtMs === null || nowMs - askedAtMs >= askAgainMs ? "ask" : "wait";
}

const outcomes: { readonly [Reason in EndReason]: EndOutcome } = {
  cancelled: { status: "cancelled", code: "cancelled", message: "The job was cancelled." },
  timed_out: {
    status: "failed",
    code: "timed_out",
    message: "The job took longer than its manifest allows, and was ended.",
  },
  silent: {
    status: "failed",
    code: "silent",
    message:
      "The executor gave no sign of life for longer than its manifest allows, and was ended.",
  },
};
type EndOutcome = Pick<Outcome, "status"> & Required<Pick<Outcome, "code" | "message">>;

/** The outcome of a job that was brought to its end before it could write one. */
export function outcomeOf(reason: EndReason): EndOutcome {
  return outcomes[reason];
}

/** An executor that was asked because of a limit writes `cancelled`, since it cannot know why. */
export function withReason(event: JobEvent, reason: EndReason | null): JobEvent {
  if (event.type !== "outcome" || event.outcome.status !== "cancelled") return event;
  if (reason === null || reason === "cancelled") return event;
  return { ...event, outcome: { ...event.outcome, ...outcomeOf(reason) } };
}
