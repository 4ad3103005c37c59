/**
 * Reading `events.ndjson` while an executor writes it, and writing its last line when the executor
 * could not.
 *
 * Invariant: events are numbered from 1 without a hole and the outcome is the last; a file that breaks
 * this is corrupt from there on and nothing after it is sent. Only complete lines count.
 */
import { constants } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { join } from "node:path";
import type { Outcome } from "../model/job.ts";
import { JobEvent } from "../protocol/events.ts";
import { frameBytesMax } from "../protocol/frames.ts";
import { jobFiles } from "../protocol/job-folder.ts";
import { openOwn } from "./foreign-file.ts";

/** The largest single event: a frame less its envelope. */
export const eventBytesMax = frameBytesMax - 4096;
const chunkBytes = 256 * 1024;
const newline = 0x0a;

/** An event and where in the file its line ends. */
export interface ReadEvent {
  readonly event: JobEvent;
  readonly bytes: number;
  readonly endOffset: number;
}

/** Where to go on reading: the line that starts here must have this number. */
export interface Mark {
  readonly offset: number;
  readonly seq: number;
}

export const startMark: Mark = { offset: 0, seq: 1 };

export interface EventsRead {
  readonly events: readonly ReadEvent[];
  /** Where the next read goes on. */
  readonly mark: Mark;
  /** What is wrong with the next line, when it can never be sent. */
  readonly corrupt: string | null;
}

/** The complete lines after `mark`, about a chunk of them; none when nothing new is there. */
export async function readEvents(folder: string, mark: Mark): Promise<EventsRead> {
  await using file = await openEvents(folder, constants.O_RDONLY);
  if (!file) return { events: [], mark, corrupt: null };
  let buffer = await readAt(file, mark.offset, chunkBytes);
  if (!buffer.includes(newline) && buffer.length === chunkBytes) {
    buffer = await readAt(file, mark.offset, eventBytesMax + 1);
    if (!buffer.includes(newline) && buffer.length > eventBytesMax) {
      return {
        events: [],
        mark,
        corrupt: `line ${mark.seq} is longer than ${eventBytesMax} bytes`,
      };
    }
  }
  return parseLines(buffer, mark);
}

/** The last complete line, or null when there is none or it is no event. */
export async function readLastEvent(folder: string): Promise<JobEvent | null> {
  await using file = await openEvents(folder, constants.O_RDONLY);
  if (!file) return null;
  const { size } = await file.stat();
  // Twice the largest line, so that a whole one is in it, whatever follows.
  const length = Math.min(size, 2 * frameBytesMax);
  const tail = await readAt(file, size - length, length);
  const end = tail.lastIndexOf(newline);
  if (end < 0) return null;
  const start = end === 0 ? 0 : tail.lastIndexOf(newline, end - 1) + 1;
  return parseEvent(tail.toString("utf8", start, end));
}

/**
 * Writes the outcome in the executor's place. Only after the executor was proved gone: what it left of
 * a line, or wrote after the last good one, is cut off first.
 */
export async function appendOutcome(folder: string, outcome: Outcome, at: Date): Promise<void> {
  const { mark, last } = await readToEnd(folder);
  if (last?.type === "outcome") return;
  const event = { seq: mark.seq, at: at.toISOString(), type: "outcome", outcome };
  await using file = await openEvents(folder, constants.O_RDWR | constants.O_CREAT);
  if (!file) return;
  await file.truncate(mark.offset);
  await file.write(`${JSON.stringify(event)}\n`, mark.offset);
  await file.sync();
}

async function readToEnd(folder: string): Promise<{ mark: Mark; last: JobEvent | null }> {
  let mark = startMark;
  let last: JobEvent | null = null;
  for (;;) {
    const read = await readEvents(folder, mark);
    if (read.events.length === 0) return { mark: read.mark, last };
    last = read.events.at(-1)?.event ?? null;
    mark = read.mark;
  }
}

function parseLines(buffer: Buffer, mark: Mark): EventsRead {
  const events: ReadEvent[] = [];
  let { seq } = mark;
  let start = 0;
  for (let end = buffer.indexOf(newline); end >= 0; end = buffer.indexOf(newline, start)) {
    const event = parseEvent(buffer.toString("utf8", start, end));
    const next = { offset: mark.offset + start, seq };
    if (event?.seq !== seq) {
      const got = event ? `number ${event.seq}` : "something that is no event";
      return { events, mark: next, corrupt: `expected event ${seq} in line ${seq}, got ${got}` };
    }
    if (events.at(-1)?.event.type === "outcome") {
      return {
        events,
        mark: next,
        corrupt: `expected nothing after the outcome, got event ${seq}`,
      };
    }
    events.push({ event, bytes: end - start, endOffset: mark.offset + end + 1 });
    start = end + 1;
    seq++;
  }
  return { events, mark: { offset: mark.offset + start, seq }, corrupt: null };
}

function parseEvent(line: string): JobEvent | null {
  try {
    return JobEvent.safeParse(JSON.parse(line)).data ?? null;
  } catch {
    return null;
  }
}

function openEvents(folder: string, flags: number): Promise<FileHandle | null> {
  return openOwn(join(folder, jobFiles.events), flags);
}

async function readAt(file: FileHandle, offset: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await file.read(buffer, 0, length, offset);
  return buffer.subarray(0, bytesRead);
}
