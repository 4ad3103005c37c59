/**
 * Runs a program for a plugin, line by line and within a time.
 *
 * The program stays in the plugin's own process group: whoever ends the group, ends it too. A
 * cancelled job reaches it that way, so here only the time limit kills.
 */
import { spawn } from "node:child_process";
import { jobFolderName } from "../protocol/job-folder.ts";
import type { PluginRequest } from "../protocol/plugin-request.ts";
import { readLines } from "./lines.ts";
import { OperationFailure } from "./plugin.ts";

export const lineBytesMax = 1024 * 1024;
const killGraceMs = 5000;
/** A grandchild may hold the pipes open after the program itself has ended. */
const drainMs = 500;

/** By this variable the launcher finds every process of a job, also one that left its parents. */
const jobMark = "LANDFALL_JOB";

export interface CommandOptions {
  readonly job: PluginRequest["job"];
  readonly directory: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly onLine: (line: string, stream: "stdout" | "stderr") => void;
}

/** The exit code; a failure when the program cannot be started, is killed, or takes too long. */
export async function runCommand(
  command: readonly string[],
  options: CommandOptions,
): Promise<number> {
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    cwd: options.directory,
    env: { ...options.environment, [jobMark]: jobFolderName(options.job.id, options.job.epoch) },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let timedOut = false;
  let killTimer: NodeJS.Timeout | undefined;
  const timer = setTimeout(() => {
    timedOut = true;
    child.kill("SIGTERM");
    killTimer = setTimeout(() => child.kill("SIGKILL"), killGraceMs);
  }, options.timeoutMs);
  try {
    const reading = Promise.all([
      readLines(child.stdout, lineBytesMax, (line) => options.onLine(line, "stdout")),
      readLines(child.stderr, lineBytesMax, (line) => options.onLine(line, "stderr")),
    ]);
    reading.catch(() => undefined); // Pipes that break are the program's end, told below.
    const { code, signal } = await ended(child);
    await Promise.race([reading, delay(drainMs)]);
    child.stdout.destroy();
    child.stderr.destroy();
    await reading.catch(() => undefined);
    if (timedOut) {
      throw new OperationFailure(
        `Expected \`${program}\` to end within ${options.timeoutMs} ms; it did not and was killed. Raise the component's \`timeout\` if it needs longer.`,
        "timed_out",
      );
    }
    if (code === null) throw new OperationFailure(`\`${program}\` was ended by ${signal}.`);
    return code;
  } finally {
    clearTimeout(timer);
    clearTimeout(killTimer);
  }
}

function ended(
  child: ReturnType<typeof spawn>,
): Promise<{ code: number | null; signal: string | null }> {
  return new Promise((resolve, reject) => {
    child.once("exit", (code, signal) => resolve({ code, signal }));
    child.once("error", (error) => {
      const isMissing = "code" in error && error.code === "ENOENT";
      reject(
        new OperationFailure(
          `Expected to start \`${child.spawnfile}\`, but ${isMissing ? "there is no such program here" : error.message}.`,
          isMissing ? "missing_tool" : "operation_failed",
          error,
        ),
      );
    });
  });
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms).unref());
}
