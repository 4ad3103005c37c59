/**
 * Notices a connection that is half dead: the other end is gone, but nobody said so.
 *
 *   heard ──5 ticks of nothing──> pinged ──5 more──> given up
 *     ^──────────anything at all────┘
 *
 * Invariant: silence is counted in ticks of our own timer and not read from a clock, so an agent that
 * was itself stopped for an hour does not blame the server for it.
 */
export const tickMs = 1000;
export const pingAfterTicks = 5;
export const giveUpAfterTicks = 10;

export interface LineWatch {
  heard(): void;
  stop(): void;
}

/** Watches until stopped; `ping` must make a live server answer. */
export function watchLine(act: { ping(): void; giveUp(): void }): LineWatch {
  let ticks = 0;
  const timer = setInterval(() => {
    ticks++;
    if (ticks === pingAfterTicks) act.ping();
    if (ticks < giveUpAfterTicks) return;
    clearInterval(timer);
    act.giveUp();
  }, tickMs);
  return {
    heard() {
      ticks = 0;
    },
    stop: () => clearInterval(timer),
  };
}
