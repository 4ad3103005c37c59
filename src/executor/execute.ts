/**
 * One job, from its folder to its outcome.
 *
 * Invariant: whatever happens inside the operation becomes exactly one outcome. Only what makes an
 * outcome impossible (a forged manifest, a folder that was used before, a full disk) is thrown, and
 * then nothing was done.
 */
import { mkdir, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { describeError, isFault } from "../model/fault.ts";
import type { Operation, Outcome } from "../model/job.ts";
import { isBadContent } from "../oci/content-fault.ts";
import { OperationFailure } from "../plugin/plugin.ts";
import type { Manifest } from "../protocol/documents.ts";
import { jobFiles } from "../protocol/job-folder.ts";
import type { ExecutorContext, Operate } from "./context.ts";
import { openEventLog } from "./event-log.ts";
import { startHeartbeat } from "./heartbeat.ts";
import { readCredentials, readJob } from "./job-files.ts";
import { runPlugin } from "./plugin-process.ts";
import { createRedactor } from "./redaction.ts";

/** How long a plugin that was asked to end may take. */
export const killGraceMs = 10_000;
/** As many as an outcome can tell; the next job tells the rest. */
const conflictsMax = 100;
/** What an operation may take besides, to notice that it was cancelled. */
const settleMs = 2000;
/** Node's timers go no further, and fire at once beyond. */
const timerMsMax = 2 ** 31 - 1;

export interface ExecuteOptions {
  /** Loads the code of an operation, and only of that one. */
  readonly loadOperation: (operation: Operation, isSandbox: boolean) => Promise<Operate>;
  /** The command line of a plugin, by its name. */
  readonly pluginCommand: (name: string) => readonly string[];
  readonly searchPath: string;
  /** Aborted when the executor is asked to end. */
  readonly signal: AbortSignal;
  readonly now: () => Date;
  readonly random: (size: number) => Uint8Array;
  /** Gets what is a bug rather than a failed operation, already redacted. */
  readonly reportBug: (text: string) => void;
  readonly killGraceMs?: number;
}

/** Executes the job in this folder; the outcome is the last line of its events. */
export async function executeJob(folder: string, options: ExecuteOptions): Promise<Outcome> {
  const documents = await readJob(folder);
  const redactor = createRedactor();
  if (documents.place.registry) redactor.add(documents.place.registry.password);
  const log = openEventLog(folder, redactor, options.now);
  const stopHeartbeat = startHeartbeat(folder, documents.manifest.limits, options.now);
  const workDirectory = join(folder, jobFiles.work);
  await mkdir(workDirectory, { recursive: true, mode: 0o700 });
  const { manifest } = documents;
  const outOfTime = new AbortController();
  const timer = setTimeout(
    () => outOfTime.abort(),
    Math.min(timerMsMax, finishSecondsOf(manifest) * 1000),
  );
  const signal = AbortSignal.any([options.signal, outOfTime.signal]);
  const context: ExecutorContext = {
    ...documents,
    log,
    redactor,
    workDirectory,
    signal,
    conflicts: new Set(),
    random: options.random,
    async readCredentials() {
      const credentials = await readCredentials(folder);
      if (credentials.vendorRegistry) redactor.add(credentials.vendorRegistry.token);
      if (credentials.enrolment) redactor.add(credentials.enrolment.code);
      return credentials;
    },
    runPlugin: (request) =>
      runPlugin({
        command: options.pluginCommand(manifest.plugin),
        environment: {
          PATH: options.searchPath,
          HOME: workDirectory,
          LANG: "C.UTF-8",
          // The launcher finds a job's processes by this mark.
          LANDFALL_JOB: basename(folder),
        },
        request,
        log,
        redactor,
        signal,
        killGraceMs: options.killGraceMs ?? killGraceMs,
      }),
  };
  const operate = await options.loadOperation(manifest.operation, manifest.component === null);
  const ended = await outcomeOf(operate, context, options, outOfTime.signal);
  const conflicts = [...context.conflicts].slice(0, conflictsMax);
  const outcome = conflicts.length > 0 ? { ...ended, conflicts } : ended;
  // Rendered configurations and plans may lie there.
  await rm(workDirectory, { recursive: true, force: true }).catch(() => undefined);
  await log.finish(outcome, outOfTime.signal);
  clearTimeout(timer);
  stopHeartbeat();
  return outcome;
}

/** Manifests of protocol 1 have one limit. */
function finishSecondsOf({ limits, timeoutSeconds }: Manifest): number {
  return limits?.finishSeconds ?? timeoutSeconds;
}

async function outcomeOf(
  operate: Operate,
  context: ExecutorContext,
  options: ExecuteOptions,
  outOfTime: AbortSignal,
): Promise<Outcome> {
  const graceMs = (options.killGraceMs ?? killGraceMs) + settleMs;
  try {
    // A job that is asked to end while its last step succeeds has succeeded: that is the truth.
    return await Promise.race([operate(context), givenUp(context.signal, graceMs)]);
  } catch (error) {
    if (outOfTime.aborted && !options.signal.aborted) {
      const message = `Expected the job to end within ${finishSecondsOf(context.manifest)} s; it was stopped. ${describeError(error)}`;
      return { status: "failed", code: "timed_out", message };
    }
    if (context.signal.aborted) {
      return { status: "cancelled", code: "cancelled", message: "The job was cancelled." };
    }
    return failureOf(error, (text) => options.reportBug(context.redactor.redact(text)));
  }
}

function failureOf(error: unknown, reportBug: (text: string) => void): Outcome {
  const message = describeError(error);
  if (error instanceof OperationFailure) return { status: "failed", code: error.code, message };
  if (isBadContent(error)) return { status: "failed", code: "bad_artifact", message };
  if (isFault(error, "conflict")) return { status: "failed", code: "fenced", message };
  // A registry or a source out of reach: nothing was changed by it, and it may pass.
  if (isFault(error, "unavailable")) return { status: "failed", code: "unavailable", message };
  if (!isFault(error)) reportBug(error instanceof Error ? (error.stack ?? message) : message);
  return { status: "failed", code: "operation_failed", message };
}

/** Rejects when an aborted operation has not ended within the grace. */
function givenUp(signal: AbortSignal, graceMs: number): Promise<never> {
  return new Promise((_, reject) => {
    const giveUp = () => {
      setTimeout(() => reject(new Error("It did not end when it was asked to.")), graceMs).unref();
    };
    if (signal.aborted) giveUp();
    else signal.addEventListener("abort", giveUp, { once: true });
  });
}
