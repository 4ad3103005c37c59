/**
 * What people are told about one component of one install.
 *
 *   disabled                                  the sandbox cannot run it
 *   building                                  no release yet, its build is under way
 *   waiting -> syncing -> planning -> applying -> active
 *                  \_________|__________/
 *                            v
 *                          failed            until the next deploy
 *   active | failed -> destroying -> removed
 *
 * Nothing of this is stored: it is derived, each time, from what should be, what is, and the jobs
 * of the current deploy, so it can never disagree with them.
 */
import type { Operation, Outcome } from "../../model/job.ts";
import type { ComponentView } from "../../protocol/api.ts";

export type ComponentState = ComponentView["state"];

export interface JobFact {
  readonly id: string;
  readonly operation: Operation;
  /** Unfinished jobs only: whether its agent fell silent. */
  readonly unreachable: boolean;
  /** Finished jobs only. */
  readonly outcome: Outcome | null;
}

export interface ComponentFacts {
  /** The component is part of what the install should have. */
  readonly wanted: boolean;
  /** Why the sandbox cannot run it, if it cannot. */
  readonly disabledReason: string | null;
  /** It is deployed, as the desired release makes it or in some other way. */
  readonly deployed: boolean;
  readonly upToDate: boolean;
  /** All that it depends on is up to date. */
  readonly unblocked: boolean;
  /** Reconcile has not looked at the newest outcome yet. */
  readonly due: boolean;
  /** The install has a desired release; without one the build decides. */
  readonly released: boolean;
  readonly build: {
    readonly jobId: string;
    readonly state: BuildState;
    readonly reason: string | null;
  } | null;
  readonly unfinished: JobFact | null;
  /** The newest finished job of the current deploy. */
  readonly lastFinished: JobFact | null;
}

type BuildState = "running" | "succeeded" | "failed";

export interface DerivedState {
  readonly state: ComponentState;
  readonly reason: string | null;
  readonly jobId: string | null;
}

/** How the reason of a component begins that waits for its removal. */
export const toBeRemoved = "is to be removed";

/** The state of one component, the reason where there is one, and the job that a person should look at. */
export function componentState(facts: ComponentFacts): DerivedState {
  const { unfinished, lastFinished } = facts;
  if (unfinished) {
    return {
      state: phases[unfinished.operation],
      reason: unfinished.unreachable
        ? "its agent fell silent; the job goes on there, or starts again when the agent is back"
        : null,
      jobId: unfinished.id,
    };
  }
  const jobId = lastFinished?.id ?? null;
  if (facts.disabledReason !== null && facts.wanted && !facts.deployed) {
    return { state: "disabled", reason: facts.disabledReason, jobId };
  }
  if (lastFinished?.outcome && lastFinished.outcome.status !== "succeeded") {
    // A plan that went stale is made again, as soon as reconcile has seen it.
    if (facts.due && lastFinished.outcome.code?.startsWith("stale_")) {
      return { state: "planning", reason: null, jobId };
    }
    return { state: "failed", reason: describeOutcome(lastFinished.outcome), jobId };
  }
  if (!facts.wanted || facts.disabledReason !== null) {
    const why = facts.disabledReason === null ? "" : `: ${facts.disabledReason}`;
    return facts.deployed
      ? { state: "waiting", reason: `${toBeRemoved}${why}`, jobId }
      : { state: "removed", reason: null, jobId };
  }
  if (!facts.released) return buildState(facts);
  if (facts.upToDate) return { state: "active", reason: null, jobId };
  return { state: nextPhase(facts), reason: null, jobId };
}

/** `bad_artifact: Expected …`, as people read it. */
export function describeOutcome(outcome: Outcome): string {
  const code = outcome.code ?? outcome.status;
  return outcome.message ? `${code}: ${outcome.message}` : code;
}

const phases = {
  build: "building",
  provision: "waiting",
  sync: "syncing",
  plan: "planning",
  apply: "applying",
  destroy: "destroying",
} as const satisfies Record<Operation, ComponentState>;

function buildState({ build, deployed }: ComponentFacts): DerivedState {
  if (build?.state === "failed") {
    return { state: "failed", reason: build.reason ?? "its build failed", jobId: build.jobId };
  }
  if (build?.state === "running") return { state: "building", reason: null, jobId: build.jobId };
  return { state: deployed ? "active" : "waiting", reason: null, jobId: build?.jobId ?? null };
}

/** Between two jobs of one component: the phase that comes next, so that people see no step back. */
function nextPhase({ unblocked, lastFinished }: ComponentFacts): ComponentState {
  if (!unblocked) return "waiting";
  if (lastFinished?.operation === "sync") return "planning";
  return lastFinished?.operation === "plan" ? "applying" : "waiting";
}
