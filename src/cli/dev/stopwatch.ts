/** How long the phases of a start take, and what is shown of them meanwhile. */
import { formatDuration } from "../duration.ts";
import type { ProgressDisplay } from "../progress-display.ts";
import type { Phases } from "./summary.ts";

export interface Stopwatch {
  /** Runs a phase and keeps its time, also when it fails. */
  time<Value>(phase: string, work: () => Promise<Value>): Promise<Value>;
  phases(): Phases;
}

/** Phases before there is an install whose components could be shown. */
const earlyPhases = ["programs", "postgres", "registry", "server", "sync"];

/** A stopwatch over a clock in milliseconds; each phase that ended is one line above the display's rows. */
export function createStopwatch(
  now: () => number,
  display: ProgressDisplay,
  options: { rows: boolean },
): Stopwatch {
  const phases: Record<string, number> = {};
  const busy = new Set<string>();
  const showBusy = () => {
    if (!options.rows) return;
    const row = { state: "starting", mood: "busy", detail: null, fraction: null } as const;
    display.show([...busy].map((name) => ({ name, ...row })));
  };
  return {
    async time(phase, work) {
      const began = now();
      const early = earlyPhases.includes(phase);
      phases[phase] = 0;
      if (early) {
        busy.add(phase);
        showBusy();
      }
      try {
        const value = await work();
        display.say(`${phase.padEnd(10)} ${formatDuration(now() - began)}`);
        return value;
      } finally {
        phases[phase] = now() - began;
        busy.delete(phase);
        if (early) showBusy();
      }
    },
    phases: () => ({ ...phases }),
  };
}
