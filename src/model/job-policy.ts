/** What a job may take and when it is tried again, by its operation, where nothing else is said. */
import type { JobLimits, Operation, OutcomeCode, RetryPolicy } from "./job.ts";

const hour = 3600;
const day = 24 * hour;

/** Failures of the machinery or of what lies around it; the operation itself had no say in them. */
const passing: readonly OutcomeCode[] = ["unavailable", "silent"];

/** Limits and retries of an operation. */
export function policyOf(operation: Operation): { limits: JobLimits; retry: RetryPolicy } {
  const isTenants = operation === "build" || operation === "provision";
  return {
    limits: {
      // An install may be offline for days without anything being wrong.
      startSeconds: isTenants ? day : 7 * day,
      finishSeconds: hour,
      silenceSeconds: 120,
    },
    retry: { attempts: 3, on: passing, backoffSeconds: 0.5, backoffSecondsMax: 60 },
  };
}
