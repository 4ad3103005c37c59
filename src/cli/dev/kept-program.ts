/**
 * A program of `landfall dev` that is kept running: started again when it dies, with a growing pause,
 * and stopped by asking first.
 *
 *              start              exits unasked
 *   (nothing) -------> running ------------------> pausing ---> running
 *                         | stop: SIGTERM             | stop
 *                         v                           v
 *                      stopping --- grace: SIGKILL --> stopped
 *
 * It has its own session, so that Ctrl-C reaches `dev` alone, which stops everything in order; its
 * standard input is a pipe that only `dev` holds, so that it can end itself when `dev` is killed.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { open } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { describeError } from "../../model/fault.ts";

export interface ProgramOptions {
  /** As people call it: `server`, `registry`, `build agent`. */
  readonly name: string;
  readonly command: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** Where its output goes. */
  readonly logFile: string;
  /** Before each start but the first: what has to be made anew. */
  readonly beforeRestart?: () => Promise<void>;
  /** How it is asked to stop; SIGTERM unless said otherwise. */
  readonly stopSignal?: NodeJS.Signals;
  /** Told of each death and each new start. */
  readonly tell: (message: string) => void;
}

export interface KeptProgram {
  readonly name: string;
  /** The process that runs now; null while it pauses. */
  pid(): number | null;
  /** Resolves when the first process has ended, whether it is started again or not. */
  readonly firstExit: Promise<string>;
  /** Ends the process, which is then started again at once. */
  restart(): void;
  /** Asks it to stop, kills it after the grace, and waits until it is gone. */
  stop(graceMs: number): Promise<void>;
}

const pauseFirstMs = 200;
const pauseMaxMs = 10_000;
/** Having run for so long, a program counts as healthy: its next pause is the first again. */
const healthyMs = 30_000;

/** How long to pause before the next start, after so many quick deaths in a row. */
export function pauseAfter(deaths: number): number {
  return Math.min(pauseMaxMs, pauseFirstMs * 2 ** Math.min(30, Math.max(0, deaths - 1)));
}

/** Quick deaths in a row, with one more after a run of this length. */
export function countDeaths(before: number, ranMs: number): number {
  return ranMs > healthyMs ? 1 : before + 1;
}

/** Starts the program and keeps it running until it is stopped. */
export async function keepProgram(options: ProgramOptions): Promise<KeptProgram> {
  const stopping = new AbortController();
  let child: ChildProcess | null = await startChild(options);
  let asked = false;
  const { promise: firstExit, resolve: tellFirstExit } = Promise.withResolvers<string>();

  const pause = (ms: number) => delay(ms, undefined, { signal: stopping.signal }).catch(() => {});
  const startAgain = async () => {
    await options.beforeRestart?.();
    return stopping.signal.aborted ? null : await startChild(options);
  };
  const keep = async () => {
    for (let deaths = 0; !stopping.signal.aborted; ) {
      const startedAt = performance.now();
      const reason = child ? await exitOf(child) : "it could not be started";
      child = null;
      tellFirstExit(reason);
      if (stopping.signal.aborted) return;
      deaths = asked ? 1 : countDeaths(deaths, performance.now() - startedAt);
      if (!asked) options.tell(`The ${options.name} ended (${reason}); it is started again.`);
      await pause(asked ? 0 : pauseAfter(deaths));
      asked = false;
      if (stopping.signal.aborted) return;
      child = await startAgain().catch((error: unknown) => {
        options.tell(`The ${options.name} could not be started: ${describeError(error)}`);
        return null;
      });
    }
  };
  const kept = keep();

  return {
    name: options.name,
    firstExit,
    pid: () => child?.pid ?? null,
    restart() {
      asked = true;
      child?.kill("SIGTERM");
    },
    async stop(graceMs) {
      stopping.abort();
      child?.kill(options.stopSignal ?? "SIGTERM");
      const timer = setTimeout(() => child?.kill("SIGKILL"), graceMs);
      await kept;
      clearTimeout(timer);
    },
  };
}

async function startChild(options: ProgramOptions): Promise<ChildProcess> {
  const [file = "", ...args] = options.command;
  const log = await open(options.logFile, "a", 0o600);
  try {
    const child = spawn(file, args, {
      detached: true,
      env: { ...options.environment },
      stdio: ["pipe", log.fd, log.fd],
    });
    // A pipe to a process that died says EPIPE; its exit is what counts.
    child.stdin?.on("error", () => {});
    await once(child, "spawn");
    return child;
  } finally {
    await log.close();
  }
}

async function exitOf(child: ChildProcess): Promise<string> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  return child.signalCode ? `${child.signalCode}` : `exit code ${child.exitCode}`;
}
