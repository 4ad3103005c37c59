/**
 * Who moved a tag last, so that an older try of a job, come back from the dead, cannot move it again.
 *
 * A job's token names its try (`job_….<generation>.<n>`). Ids of jobs rise with time, epochs with every
 * try; a move by an older one than the last is refused. Callers without a try (an install's own
 * credentials) are not fenced: nothing of theirs is leased.
 */
import { refuse } from "./registry-refusal.ts";

const tryForm = /^(job_[0-9a-z]+)\.(\d+)\.(\d+)$/;

/** Negative when try `a` is older than try `b`; 0 when either is no try. */
export function compareTries(a: string, b: string): number {
  const [left, right] = [tryForm.exec(a), tryForm.exec(b)];
  if (!left || !right) return 0;
  const [, jobA = "", generationA, nA] = left;
  const [, jobB = "", generationB, nB] = right;
  if (jobA !== jobB) return jobA < jobB ? -1 : 1;
  return Number(generationA) - Number(generationB) || Number(nA) - Number(nB);
}

/** Refuses a move of a tag by an older try than the one that moved it last. */
export function checkMover(tag: string, mover: string | null, last: string | null): void {
  if (mover === null || last === null || compareTries(mover, last) >= 0) return;
  throw refuse(
    403,
    "DENIED",
    `Expected the newest try to move \`${tag}\` (${last}), got ${mover}. It has been replaced and must not write.`,
  );
}

/** One at a time for each key; whoever comes later waits. */
export function createTurns(): <T>(key: string, act: () => Promise<T>) => Promise<T> {
  const last = new Map<string, Promise<unknown>>();
  return (key, act) => {
    const turn = (last.get(key) ?? Promise.resolve()).then(act, act);
    const settled = turn.catch(() => undefined);
    last.set(key, settled);
    void settled.then(() => {
      if (last.get(key) === settled) last.delete(key);
    });
    return turn;
  };
}
