/**
 * Handshakes wait in line: a few at once ask the database, so that a storm of agents that come back
 * takes its time and fails nobody, while everyone else's statements still get through.
 */
export interface HandshakeLine {
  /** Runs the step when its turn comes. */
  enter(step: () => Promise<void>): Promise<void>;
}

/** A line with so many places at its head. */
export function createHandshakeLine(atOnce: number): HandshakeLine {
  const waiting: (() => void)[] = [];
  let free = atOnce;
  return {
    async enter(step) {
      if (free > 0) free -= 1;
      else await new Promise<void>((resolve) => waiting.push(resolve));
      try {
        await step();
      } finally {
        const next = waiting.shift();
        if (next) next();
        else free += 1;
      }
    },
  };
}
