/**
 * What becomes of each job when an agent connects and tells what it knows; pure. The server does it in
 * `server/gateway/handshake.ts`; the model check explores it.
 *
 * Invariants: an executor that the server counts on goes on under the same epoch, whoever of the install's
 * agents found it; a job is lost only when an agent that may be asked about it knows nothing of it; what the
 * server does not count on is told to be forgotten, so that nothing of it is ever reported again.
 */
import type { JobId } from "./ids.ts";
import { compareEpochs, type Epoch } from "./job.ts";

/** One try of one job. */
export interface TryKey {
  readonly jobId: JobId;
  readonly epoch: Epoch;
}

/** A job that is held by the agent, or by one that a person replaced with it. */
export interface HeldTry {
  readonly key: TryKey;
  /** Its agent was revoked: a person put this one in its place. */
  readonly agentRevoked: boolean;
}

/** Every held job is in one of the first three; every entry of the journal in `keep`, `adopt` or `forget`. */
export interface JournalJudgement {
  /** Held by this agent and known to it: same lease, same epoch. */
  readonly keep: readonly TryKey[];
  /** Held by a revoked agent of the same install and known to this one: it goes over, same epoch. */
  readonly adopt: readonly TryKey[];
  /** Held by either, and not in the journal: no trace of it is left. */
  readonly lost: readonly TryKey[];
  /** In the journal and not held: ended, given on, or of a time that a restore took back. */
  readonly forget: readonly TryKey[];
}

/** Compares what the server counts on with what the agent knows. */
export function judgeJournal(
  held: readonly HeldTry[],
  journal: readonly TryKey[],
): JournalJudgement {
  const isKnown = ({ key }: HeldTry) => journal.some((entry) => isSameTry(entry, key));
  const known = held.filter(isKnown);
  return {
    keep: known.filter(({ agentRevoked }) => !agentRevoked).map(({ key }) => key),
    adopt: known.filter(({ agentRevoked }) => agentRevoked).map(({ key }) => key),
    lost: held.filter((each) => !isKnown(each)).map(({ key }) => key),
    forget: journal
      .filter((entry) => !held.some(({ key }) => isSameTry(entry, key)))
      .map(({ jobId, epoch }) => ({ jobId, epoch })),
  };
}

function isSameTry(a: TryKey, b: TryKey): boolean {
  return a.jobId === b.jobId && compareEpochs(a.epoch, b.epoch) === 0;
}
