/**
 * Starts one process in a session of its own, so that it outlives the supervisor, with the environment it was
 * given and nothing else but PATH, PORT and the mark by which its descendants are found (`process-mark.ts`).
 *
 * Invariant: output goes straight to the log file, never through a pipe of the supervisor: its death neither
 * blocks nor ends the process.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync, statSync } from "node:fs";
import { describeError } from "../model/fault.ts";
import type { ProcessRecord } from "../protocol/job-folder.ts";
import { readProcess } from "../protocol/process-identity.ts";
import type { DesiredProcess } from "../protocol/supervisor-folder.ts";
import { markVariable, sendSignal } from "./process-mark.ts";

/** A started process, or why there is none. */
export type Launched =
  | { readonly process: ProcessRecord; readonly ended: Promise<string> }
  | { readonly process: null; readonly reason: string };

/** The whole environment of a process. */
export function environmentOf(
  desired: DesiredProcess,
  { path, port, mark }: { path: string; port: number | null; mark: string },
): Record<string, string> {
  return {
    PATH: path,
    ...desired.environment,
    ...(port === null ? {} : { PORT: String(port) }),
    [markVariable]: mark,
  };
}

/** Starts the process; its output is appended to `logFile`. */
export async function launch(
  desired: DesiredProcess,
  environment: Record<string, string>,
  logFile: string,
): Promise<Launched> {
  const [program = "", ...parts] = desired.command;
  let child: ChildProcess;
  try {
    requireDirectory(desired.directory);
    const output = openOutput(logFile);
    try {
      child = spawn(program, parts, {
        cwd: desired.directory,
        env: environment,
        detached: true,
        stdio: ["ignore", output, output],
      });
    } finally {
      closeSync(output);
    }
  } catch (error) {
    return { process: null, reason: `Could not be started: ${describeError(error)}` };
  }
  child.unref();
  const ended = endOf(child);
  const record = child.pid === undefined ? null : identify(child.pid);
  // Without a record it ended already, or never began: `ended` says which.
  return record === null ? { process: null, reason: await ended } : { process: record, ended };
}

/** A process that cannot be identified (no file handle left to read /proc) could not be stopped later: it ends. */
function identify(pid: number): ProcessRecord | null {
  try {
    return readProcess(pid);
  } catch {
    sendSignal(-pid, "SIGKILL");
    return null;
  }
}

function endOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve(`Could not be started: ${describeError(error)}.`));
    child.once("exit", (code, signal) =>
      resolve(signal === null ? `Exited with code ${code}.` : `Ended by ${signal}.`),
    );
  });
}

/** Without this, a missing directory would be told as a missing program. */
function requireDirectory(directory: string): void {
  if (!statSync(directory, { throwIfNoEntry: false })?.isDirectory()) {
    throw new Error(`Expected the directory ${directory}, got none there.`);
  }
}

/** A log that cannot be opened (a full disk, no inode left) costs the output, not the process. */
function openOutput(logFile: string): number {
  try {
    return openSync(logFile, "a", 0o600);
  } catch {
    return openSync("/dev/null", "a");
  }
}
