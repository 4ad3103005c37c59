/**
 * The job's events: numbered from 1, one write per line, redacted, the outcome last and flushed.
 *
 * Invariant: there is never a second outcome, and nothing follows it. A folder in which an executor has
 * been started before is refused: its events are not ours to continue. A line for which the disk has no
 * room keeps its number, and a gap says so as soon as something fits again; the outcome always does.
 */
import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Fault } from "../model/fault.ts";
import { errorCode } from "../model/file-fault.ts";
import type { Outcome } from "../model/job.ts";
import { type JobEvent, logLineBytesMax } from "../protocol/events.ts";
import { frameBytesMax } from "../protocol/frames.ts";
import { jobFiles } from "../protocol/job-folder.ts";
import { openSegments, type SegmentLimits } from "./event-segments.ts";
import type { Redactor } from "./redaction.ts";

export interface EventLimits extends SegmentLimits {
  /** More of a job's log than this is dropped, and said so once. */
  readonly logBytes: number;
}

export const eventLimits: EventLimits = {
  segmentBytes: 1024 * 1024,
  folderBytes: 64 * 1024 * 1024,
  ballastBytes: frameBytesMax,
  logBytes: 1024 * 1024 * 1024,
};
const startedFile = "started";
const progressEveryMs = 250;
const cutMark = " … (cut)";
const finishAgainMs = 500;
/** An outcome that the disk refuses is tried this often even when the job's time is over. */
const finishAttemptsMin = 20;

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
  /**
   * Writes the outcome and flushes; only the first one counts. On a full disk it tries again until
   * `outOfTime`, and then throws.
   */
  finish(outcome: Outcome, outOfTime: AbortSignal): Promise<void>;
}

/** Opens the events for the one executor that may write them. */
export function openEventLog(
  folder: string,
  redactor: Redactor,
  now: () => Date,
  limits: EventLimits = eventLimits,
): EventLog {
  claim(folder);
  const segments = openSegments(folder, limits);
  const lastProgress = new Map<string, number>();
  let number = 0;
  let loggedBytes = 0;
  let isFinished = false;
  /** The first number of the lines for which there was no room, and have not been told yet. */
  let droppedFrom: number | null = null;

  const lineOf = (seq: number, event: Unnumbered) =>
    `${JSON.stringify({ seq, at: now().toISOString(), ...event })}\n`;

  /** Lines that did not fit come first, as a gap: numbers have no hole. */
  function gapBefore(next: number): string {
    if (droppedFrom === null) return "";
    const last = next - 1;
    const reason = `The disk was full: ${next - droppedFrom} lines were dropped.`;
    return lineOf(droppedFrom, { type: "gap", last, reason });
  }

  function append(event: Unnumbered): void {
    number += 1;
    const line = lineOf(number, event);
    loggedBytes += Buffer.byteLength(line);
    if (segments.write(gapBefore(number) + line)) droppedFrom = null;
    else droppedFrom ??= number;
  }

  return {
    log(stream, text) {
      if (isFinished || loggedBytes > limits.logBytes) return;
      for (const line of text.split(/\r?\n/)) {
        append({ type: "log", stream, line: cut(redactor.redact(line), logLineBytesMax) });
      }
      if (loggedBytes > limits.logBytes) {
        const line = `The log of this job has reached ${limits.logBytes} bytes; further lines are dropped.`;
        append({ type: "log", stream: "system", line });
      }
    },
    reportProgress({ label, done, total, unit }) {
      const atMs = now().getTime();
      const isLast = total !== null && done >= total;
      const isSoon = atMs - (lastProgress.get(label) ?? 0) < progressEveryMs;
      if (isFinished || loggedBytes > limits.logBytes || (isSoon && !isLast)) return;
      lastProgress.set(label, atMs);
      const shown = cut(redactor.redact(label), logLineBytesMax);
      append({ type: "progress", label: shown, done, total, unit });
    },
    async finish(outcome, outOfTime) {
      if (isFinished) return;
      isFinished = true;
      const { message, ...rest } = outcome;
      const shown = message === undefined ? null : cut(redactor.redact(message), logLineBytesMax);
      number += 1;
      const told = shown === null ? rest : { ...rest, message: shown };
      const text =
        gapBefore(number) + lineOf(number, { type: "outcome", outcome: told } as Unnumbered);
      let isWritten = segments.write(text);
      segments.releaseBallast();
      for (let attempt = 1; ; attempt++) {
        isWritten ||= segments.write(text);
        if (isWritten && segments.flush()) break;
        if (outOfTime.aborted && attempt >= finishAttemptsMin) throw noRoom();
        await sleep(finishAgainMs);
      }
      segments.close();
    },
  };
}

function noRoom(): Fault {
  return new Fault(
    "unavailable",
    "Expected room for the outcome on the disk until the job's time was over, got none. Free some space.",
  );
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
