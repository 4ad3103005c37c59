/**
 * Reports of one connection that are being handled: several at once, so that a batch of the desk holds
 * more than one of each agent.
 *
 * Invariants: never more than a few, and a large one alone holds up what follows: whoever sends faster
 * waits. Reports of one job are handled in their order; only that a job runs may go with what follows it,
 * since the desk takes it first.
 */
import type { Report } from "./reports.ts";

const reportsMax = 16;
/** A larger one is waited for: together they are never more than about a megabyte. */
const bytesMax = 64 * 1024;

export interface UnderWay {
  /** Begins to handle a report; resolves when there is room for the next one. `handle` never rejects. */
  add(report: Report, bytes: number, handle: () => Promise<void>): Promise<void>;
}

/** Nothing is under way. */
export function createUnderWay(): UnderWay {
  let reports: Map<Report, Promise<void>> | null = null;

  /** Until nothing that this one must follow is under way. */
  async function waitFor(report: Report): Promise<void> {
    for (const [earlier, done] of reports ?? []) if (mustFollow(report, earlier)) await done;
  }

  return {
    async add(report, bytes, handle) {
      await waitFor(report);
      reports ??= new Map();
      const done = handle().finally(() => {
        reports?.delete(report);
        if (reports?.size === 0) reports = null;
      });
      reports.set(report, done);
      if (bytes > bytesMax) await done;
      else if (reports.size >= reportsMax) await Promise.race(reports.values());
    },
  };
}

function mustFollow(report: Report, earlier: Report): boolean {
  if (jobOf(report) !== jobOf(earlier)) return false;
  return !(earlier.type === "accepted" && report.type === "events");
}

function jobOf(report: Report): string | undefined {
  return report.type === "refused" ? report.job?.jobId : report.jobId;
}
