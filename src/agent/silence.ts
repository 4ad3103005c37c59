/**
 * How long an executor has given no sign of life, without I/O, on the monotonic clock of the machine.
 *
 * Invariant: only time in which the agent was looking counts. A machine that slept, and an agent that
 * was stopped or started anew, have seen no silence: the count begins again.
 */

/** Looks that lie further apart than this say nothing of the time in between. */
const lookGapMaxMs = 10_000;

export interface Silence {
  /** What changes while the executor lives: its heartbeat and how far its events reach. */
  readonly sign: string;
  readonly sinceMs: number;
  readonly lookedAtMs: number;
}

/** What a look at the executor makes of it; `before` is null at the first one. */
export function look(before: Silence | null, sign: string, nowMs: number): Silence {
  const isNews = !before || before.sign !== sign || nowMs - before.lookedAtMs > lookGapMaxMs;
  return { sign, sinceMs: isNews ? nowMs : before.sinceMs, lookedAtMs: nowMs };
}

/** True when the silence is longer than the limit; null: there is none. */
export function isTooLong(silence: Silence, limitMs: number | null): boolean {
  return limitMs !== null && silence.lookedAtMs - silence.sinceMs >= limitMs;
}
