/** How long the phases of a start take. */
import type { Phases } from "./summary.ts";

export interface Stopwatch {
  /** Runs a phase and keeps its time, also when it fails. */
  time<Value>(phase: string, work: () => Promise<Value>): Promise<Value>;
  phases(): Phases;
}

/** A stopwatch over a clock in milliseconds. `onEnd` hears of each phase. */
export function createStopwatch(
  now: () => number,
  onEnd: (phase: string, ms: number) => void = () => {},
): Stopwatch {
  const phases: Record<string, number> = {};
  return {
    async time(phase, work) {
      const began = now();
      phases[phase] = 0;
      const value = await work().finally(() => {
        phases[phase] = now() - began;
      });
      onEnd(phase, now() - began);
      return value;
    },
    phases: () => ({ ...phases }),
  };
}
