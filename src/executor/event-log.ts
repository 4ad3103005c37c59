/**
 * The job's events: numbered from 1, one write per line, redacted, the outcome last and flushed.
 *
 * Invariant: there is never a second outcome, and nothing follows it. A folder in which an executor has
 * been started before is refused: its events are not ours to continue.
 */
import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { Fault } from "../model/fault.ts";
import { errorCode } from "../model/file-fault.ts";
import type { Outcome } from "../model/job.ts";
import { type JobEvent, logLineBytesMax } from "../protocol/events.ts";
import { jobFiles } from "../protocol/job-folder.ts";
import type { Redactor } from "./redaction.ts";

/** More of a job's log than this is dropped, and said so once. */
export const logBytesMax = 64 * 1024 * 1024;
const startedFile = "started";
const progressEveryMs = 250;
const cutMark = " … (cut)";

export type LogStream = "stdout" | "stderr" | "system";
export interface Progress {
  readonly label: string;
  readonly done: number;
  readonly total: number | null;
  readonly unit: "bytes" | "steps";
}

export interface EventLog {
  log(stream: LogStream, text: string): void;
  /** At most a few a second for one label; the last one always. */
  reportProgress(progress: Progress): void;
  /** Writes the outcome and flushes; only the first one counts. */
  finish(outcome: Outcome): void;
}

/** Opens `events.ndjson` for the one executor that may write it. */
export function openEventLog(folder: string, redactor: Redactor, now: () => Date): EventLog {
  claim(folder);
  const file = openSync(join(folder, jobFiles.events), "a", 0o600);
  const lastProgress = new Map<string, number>();
  let number = 0;
  let loggedBytes = 0;
  let isFinished = false;

  function append(event: WithoutNumber<JobEvent>): number {
    number += 1;
    const line = `${JSON.stringify({ seq: number, at: now().toISOString(), ...event })}\n`;
    writeSync(file, line);
    return Buffer.byteLength(line);
  }

  return {
    log(stream, text) {
      if (isFinished || loggedBytes > logBytesMax) return;
      for (const line of text.split(/\r?\n/)) {
        const shown = cut(redactor.redact(line), logLineBytesMax);
        loggedBytes += append({ type: "log", stream, line: shown });
      }
      if (loggedBytes > logBytesMax) {
        const line = `The log of this job has reached ${logBytesMax} bytes; further lines are dropped.`;
        append({ type: "log", stream: "system", line });
      }
    },
    reportProgress({ label, done, total, unit }) {
      const atMs = now().getTime();
      const isLast = total !== null && done >= total;
      const isSoon = atMs - (lastProgress.get(label) ?? 0) < progressEveryMs;
      if (isFinished || loggedBytes > logBytesMax || (isSoon && !isLast)) return;
      lastProgress.set(label, atMs);
      const shown = cut(redactor.redact(label), logLineBytesMax);
      loggedBytes += append({ type: "progress", label: shown, done, total, unit });
    },
    finish(outcome) {
      if (isFinished) return;
      isFinished = true;
      const { message, ...rest } = outcome;
      const shown = message === undefined ? null : cut(redactor.redact(message), logLineBytesMax);
      append({
        type: "outcome",
        outcome: shown === null ? rest : { ...rest, message: shown },
      } as Unnumbered);
      fsyncSync(file);
      closeSync(file);
    },
  };
}

type WithoutNumber<Event> = Event extends unknown ? Omit<Event, "seq" | "at"> : never;
type Unnumbered = WithoutNumber<JobEvent>;

/** Of two executors in one folder, at once or one after the other, the second is refused. */
function claim(folder: string): void {
  try {
    closeSync(openSync(join(folder, startedFile), "wx", 0o600));
    if (readFileSync(join(folder, jobFiles.events)).byteLength === 0) return;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return;
    if (errorCode(error) !== "EEXIST") throw error;
  }
  throw new Fault(
    "conflict",
    "Expected a job's folder in which no executor has been started, got one that has. A job's try is executed once; its agent offers a new one.",
  );
}

/** The text's beginning in at most so many bytes, with a mark when something is missing. */
export function cut(text: string, bytesMax: number): string {
  if (text.length * 3 <= bytesMax || Buffer.byteLength(text) <= bytesMax) return text;
  const room = bytesMax - Buffer.byteLength(cutMark);
  const kept = Buffer.from(text)
    .subarray(0, room)
    .toString("utf8")
    .replace(/\uFFFD+$/u, "");
  return kept + cutMark;
}
