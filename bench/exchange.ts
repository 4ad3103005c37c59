/**
 * Questions and answers between a measurement and the programs that it measures: each runs in a
 * process of its own, so that none is measured by the clock of another's event loop.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";

/** What a program answers to; an argument and a result are plain data. */
type Answers = Readonly<Record<string, (argument: never) => unknown>>;

interface Question {
  readonly number: number;
  readonly name: string;
  readonly argument: unknown;
}
interface Answer {
  readonly number: number;
  readonly value?: unknown;
  readonly error?: string;
}

/** A program under measurement, and the way to ask it. */
export interface Program<Table extends Answers> {
  readonly pid: number;
  ask<Name extends keyof Table & string>(
    name: Name,
    ...argument: Parameters<Table[Name]>
  ): Promise<Awaited<ReturnType<Table[Name]>>>;
  /** Ends it at once. */
  kill(): Promise<void>;
  /** Lets it end by itself, which is when a profile is written. */
  stop(): Promise<void>;
}

export interface ProgramOptions {
  /** For Node itself. */
  readonly flags?: readonly string[];
  /** Where a CPU profile is written. */
  readonly profile?: string | null;
}

const stopMs = 20_000;

/** Starts a program of this folder. */
export function startProgram<Table extends Answers>(
  file: string,
  options: ProgramOptions = {},
): Program<Table> {
  const profile = options.profile ? ["--cpu-prof", `--cpu-prof-dir=${options.profile}`] : [];
  const child = fork(join(import.meta.dirname, file), [], {
    execArgv: [
      "--disable-warning=ExperimentalWarning",
      "--expose-gc",
      ...(options.flags ?? []),
      ...profile,
    ],
    serialization: "advanced",
  });
  const waiting = new Map<number, PromiseWithResolvers<unknown>>();
  let last = 0;
  child.on("message", ({ number, value, error }: Answer) => {
    const question = waiting.get(number);
    waiting.delete(number);
    if (error === undefined) question?.resolve(value);
    else question?.reject(new Error(`${file}: ${error}`));
  });
  child.on("exit", (code, signal) => {
    for (const { reject } of waiting.values()) {
      reject(new Error(`Expected ${file} to answer, but it ended (${signal ?? code}).`));
    }
  });
  return {
    pid: child.pid ?? 0,
    ask(name, ...argument) {
      const question = Promise.withResolvers<unknown>();
      waiting.set(++last, question);
      child.send({ number: last, name, argument: argument[0] } satisfies Question);
      return question.promise as ReturnType<Program<Table>["ask"]> as never;
    },
    kill: () => end(child, "SIGKILL"),
    stop: () => end(child, "SIGTERM"),
  };
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill(signal);
  const timer = setTimeout(() => child.kill("SIGKILL"), stopMs);
  await ended;
  clearTimeout(timer);
}

/** In such a program: answers until it is stopped; `close` is the last thing that it does. */
export function answer(table: Answers, close: () => Promise<void> = async () => {}): void {
  process.on("message", async ({ number, name, argument }: Question) => {
    try {
      const value = await table[name]?.(argument as never);
      process.send?.({ number, value } satisfies Answer);
    } catch (error) {
      const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
      process.send?.({ number, error: text } satisfies Answer);
    }
  });
  const stop = () => void close().finally(() => process.exit(0));
  process.on("SIGTERM", stop);
  process.on("disconnect", stop);
}

/** Milliseconds of the machine's monotonic clock: the same in all processes. */
export function clockMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}
