/** How long to wait before the next try: full jitter, so that a fleet never comes back in step. */

const firstMs = 250;
const retryCapMs = 15_000;
/** After a refusal a person must act: there is no point in asking often. */
const refusedRetryMs = 60_000;
/** A server that says goodbye says it to all its agents at once: they spread over this. */
const restartSpreadMs = 2000;
/** Whoever asks for more patience than this does not get it. */
const retryAfterMaxMs = 300_000;

/** A random wait below 250 ms after the first failure (`attempt` 0), doubling up to `capMs`. */
export function fullJitterMs(attempt: number, capMs: number, random: () => number): number {
  return random() * Math.min(capMs, firstMs * 2 ** Math.min(attempt, 30));
}

/** How a connection ended, as far as the next one depends on it. */
export interface LastEnd {
  readonly code: "closed" | "retry" | "refused";
  /** What the server asked for with `Retry-After`. */
  readonly retryAfterMs: number | null;
}

/** The wait before the next connection; half of all agents are back by the time the server asked for. */
export function reconnectMs(last: LastEnd, attempt: number, random: () => number): number {
  if (last.code === "refused") return refusedRetryMs * (0.5 + random() / 2);
  const ladderMs = fullJitterMs(attempt, retryCapMs, () => 1);
  const askedMs = 2 * Math.min(last.retryAfterMs ?? 0, retryAfterMaxMs);
  const spreadMs = last.code === "retry" ? restartSpreadMs : 0;
  return random() * Math.max(ladderMs, askedMs, spreadMs);
}
