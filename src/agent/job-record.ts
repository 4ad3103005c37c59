/** What the journal keeps of an offer that is to be launched; its limits begin to run now. */
import { timeoutGraceMs } from "./ending.ts";
import type { JournalJob } from "./journal.ts";
import type { VerifiedOffer } from "./offer.ts";

/** The record of a verified offer; `document` is its manifest as the server signed it. */
export function recordOf(
  { key, manifest, manifestDigest, component }: VerifiedOffer,
  document: string,
  nowMs: number,
): JournalJob {
  const { limits, timeoutSeconds } = manifest;
  return {
    key,
    component,
    manifest: document,
    manifestDigest,
    deadlineMs: nowMs + (limits?.finishSeconds ?? timeoutSeconds) * 1000,
    silenceMs: limits ? limits.silenceSeconds * 1000 : null,
    endReason: null,
    graceMs: timeoutGraceMs,
  };
}
