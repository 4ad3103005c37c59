/**
 * How `dev` is stopped. The first Ctrl-C or SIGTERM begins it; a second SIGTERM means nothing (npm
 * forwards the one that its group got too); a later Ctrl-C is answered with what is still waited for.
 */
import type { CliContext } from "../context.ts";

export interface StopControl {
  /** Fires when it shall stop. */
  readonly signal: AbortSignal;
  /** Takes note of what is being waited for. */
  waitingFor(name: string): void;
  /** Hears no more. */
  end(): void;
}

/** One Ctrl-C can arrive twice, from the terminal and from npm. */
const sameWishMs = 1000;

/** Listens from now on. */
export function createStopControl(context: Pick<CliContext, "onStop" | "terminal">): StopControl {
  const stopping = new AbortController();
  let waiting = "what was being started";
  let askedAt = 0;
  const end = context.onStop((signal) => {
    if (!stopping.signal.aborted) {
      askedAt = performance.now();
      context.terminal.note("\nStopping…\n");
      stopping.abort();
    } else if (signal === "SIGINT" && performance.now() - askedAt > sameWishMs) {
      askedAt = performance.now();
      context.terminal.note(`Still stopping: waiting for ${waiting}.\n`);
    }
  });
  return {
    signal: stopping.signal,
    end,
    waitingFor(name) {
      waiting = name;
    },
  };
}
