/** How long to wait before the next try: full jitter, so that a fleet never comes back in step. */

const firstMs = 250;

/** A random wait below 250 ms after the first failure (`attempt` 0), doubling up to `capMs`. */
export function fullJitterMs(attempt: number, capMs: number, random: () => number): number {
  return random() * Math.min(capMs, firstMs * 2 ** Math.min(attempt, 30));
}
