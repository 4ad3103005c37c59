/**
 * One plugin, one process, one request: started with a clean environment in its own process group, read
 * line by line, ended with its whole group.
 *
 * Invariant: whatever the plugin does (nonsense on stdout, no outcome, two outcomes, children left
 * behind), the result is one outcome, and no process of its group outlives it.
 */
import { type ChildProcess, spawn } from "node:child_process";
import type { Json } from "../model/json.ts";
import { readLines } from "../plugin/lines.ts";
import { PluginEvent, type PluginRequest } from "../protocol/plugin-request.ts";
import type { EventLog } from "./event-log.ts";
import type { Redactor } from "./redaction.ts";

/** A plan event holds a whole plan. */
const eventBytesMax = 128 * 1024 * 1024;
const stderrLineBytesMax = 1024 * 1024;
const stderrTailLines = 20;
/** After its outcome a plugin has nothing to do but to end. */
const lingerMs = 5000;
/** A process that left the group may hold the pipes. */
const drainMs = 500;

type OutcomeEvent = Extract<PluginEvent, { type: "outcome" }>;
type PlanEvent = Extract<PluginEvent, { type: "plan" }>;
export interface GivenOutput {
  readonly value: Json;
  readonly sensitive: boolean;
}

export interface PluginResult {
  readonly outcome: Omit<OutcomeEvent, "type">;
  readonly outputs: ReadonlyMap<string, GivenOutput>;
  /** The last state it sent, or null when it sent none. */
  readonly state: { readonly value: Json } | null;
  readonly plan: Omit<PlanEvent, "type"> | null;
}

export interface PluginRun {
  readonly command: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly request: PluginRequest;
  readonly log: EventLog;
  readonly redactor: Redactor;
  /** Aborted: ask it to end, and kill it after the grace. */
  readonly signal: AbortSignal;
  readonly killGraceMs: number;
}

/** Runs the plugin to its end. */
export async function runPlugin(run: PluginRun): Promise<PluginResult> {
  const [program = "", ...args] = run.command;
  const child = spawn(program, args, {
    cwd: run.request.workDirectory,
    env: { ...run.environment },
    stdio: ["pipe", "pipe", "pipe"],
    detached: true,
  });
  const timers: NodeJS.Timeout[] = [];
  const killLater = (afterMs: number) =>
    timers.push(setTimeout(() => signalGroup(child, "SIGKILL"), afterMs));
  const heard = createHearing(run, () => killLater(lingerMs));
  const cancel = () => {
    signalGroup(child, "SIGTERM");
    killLater(run.killGraceMs);
  };
  run.signal.addEventListener("abort", cancel, { once: true });
  try {
    if (run.signal.aborted) cancel();
    child.stdin.on("error", () => {}); // It ended without reading; its exit tells why.
    child.stdin.end(JSON.stringify(run.request));
    const reading = Promise.all([
      readLines(child.stdout, eventBytesMax, heard.hearStdout),
      readLines(child.stderr, stderrLineBytesMax, heard.hearStderr),
    ]).catch(() => undefined);
    const exit = await exitOf(child);
    signalGroup(child, "SIGKILL");
    await Promise.race([
      reading,
      new Promise((resolve) => timers.push(setTimeout(resolve, drainMs))),
    ]);
    child.stdout.destroy();
    child.stderr.destroy();
    await reading;
    return heard.resultFor(exit);
  } finally {
    run.signal.removeEventListener("abort", cancel);
    for (const timer of timers) clearTimeout(timer);
  }
}

/** What was heard so far, and what it amounts to at the end. */
function createHearing({ log, redactor }: PluginRun, onOutcome: () => void) {
  const outputs = new Map<string, GivenOutput>();
  const stderrTail: string[] = [];
  let outcome: OutcomeEvent | null = null;
  let plan: PlanEvent | null = null;
  let state: { value: Json } | null = null;

  function hearEvent(event: PluginEvent): void {
    if (event.type === "log") log.log("stdout", event.line);
    else if (event.type === "progress") log.reportProgress(event);
    else if (event.type === "state") state = { value: event.state };
    else if (event.type === "plan") plan = event;
    else if (event.type === "outcome") {
      outcome = event;
      onOutcome();
    } else {
      if (event.sensitive) redactor.add(event.value);
      outputs.set(event.name, { value: event.value, sensitive: event.sensitive });
    }
  }

  return {
    hearStdout(line: string): void {
      if (line.trim() === "") return;
      const event = outcome ? null : parseEvent(line);
      if (event) hearEvent(event);
      else log.log("stdout", `${outcome ? "[after the outcome]" : "[not an event]"} ${line}`);
    },
    hearStderr(line: string): void {
      log.log("stderr", line);
      stderrTail.push(line);
      if (stderrTail.length > stderrTailLines) stderrTail.shift();
    },
    resultFor(exit: { code: number | null; signal: string | null; error?: string }): PluginResult {
      const crash = `Expected the plugin to end with an outcome, but it ${describeExit(exit)}.${
        stderrTail.length > 0 ? ` Its last lines:\n${stderrTail.join("\n")}` : ""
      }`;
      const { type: _, ...given } = outcome ?? {
        type: "outcome",
        status: "failed" as const,
        code: "plugin_crashed" as const,
        message: crash,
      };
      return { outcome: given, outputs, state, plan };
    },
  };
}

function parseEvent(line: string): PluginEvent | null {
  try {
    return PluginEvent.safeParse(JSON.parse(line)).data ?? null;
  } catch {
    return null;
  }
}

function exitOf(
  child: ChildProcess,
): Promise<{ code: number | null; signal: string | null; error?: string }> {
  return new Promise((resolve) => {
    child.once("exit", (code, signal) => resolve({ code, signal }));
    child.once("error", (error) => {
      if (child.pid === undefined) resolve({ code: null, signal: null, error: error.message });
    });
  });
}

function describeExit(exit: {
  code: number | null;
  signal: string | null;
  error?: string;
}): string {
  if (exit.error !== undefined) return `could not be started: ${exit.error}`;
  return exit.signal ? `was ended by ${exit.signal}` : `ended with exit code ${exit.code}`;
}

function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch {
    // The whole group is gone already.
  }
}
