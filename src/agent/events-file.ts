/**
 * Reading a job's events while its executor writes them, segment after segment.
 *
 * Invariant: events are numbered from 1 and the outcome is the last; what breaks this is corrupt from
 * there on and nothing after it is taken. Numbers may be missing only before the first line of a
 * segment, where the executor had to remove older ones: a gap stands for them. Only complete lines count.
 */
import { constants } from "node:fs";
import { type FileHandle, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { errorCode } from "../model/file-fault.ts";
import { JobEvent, lastSeqOf } from "../protocol/events.ts";
import { frameBytesMax } from "../protocol/frames.ts";
import { eventsFileOf, segmentOf } from "../protocol/job-folder.ts";
import { openOwn } from "./foreign-file.ts";

/** The largest single event: a frame less its envelope. */
export const eventBytesMax = frameBytesMax - 4096;
const chunkBytes = 256 * 1024;
const newline = 0x0a;
const removedReason = "The agent was away, and the executor's oldest lines had to give way.";

/** Where to go on reading: the line that starts here must have this number. */
export interface Mark {
  readonly segment: number;
  readonly offset: number;
  readonly seq: number;
}

export const startMark: Mark = { segment: 1, offset: 0, seq: 1 };

export interface EventsRead {
  readonly events: readonly JobEvent[];
  /** Where the next read goes on. */
  readonly mark: Mark;
  /** What is wrong with the next line, when it can never be sent. */
  readonly corrupt: string | null;
}

/** The complete lines after `mark`, about a chunk of them; none when nothing new is there. */
export async function readEvents(folder: string, mark: Mark): Promise<EventsRead> {
  const read = await readSegment(folder, mark);
  if (read && (read.events.length > 0 || read.corrupt !== null)) return read;
  const next = await nextSegment(folder, mark.segment, read !== null);
  if (next === null) return { events: [], mark, corrupt: null };
  // It was closed before the next one was made, but perhaps after it was read.
  const rest = await readSegment(folder, mark);
  if (rest && (rest.events.length > 0 || rest.corrupt !== null)) return rest;
  return readEvents(folder, { segment: next, offset: 0, seq: mark.seq });
}

/** Removes the segments before this one, which are all taken. */
export async function removeSegmentsBefore(folder: string, segment: number): Promise<void> {
  const taken = (await listSegments(folder)).filter((each) => each < segment);
  for (const each of taken) await rm(join(folder, eventsFileOf(each)), { force: true });
}

/** Null when there is no such file. */
async function readSegment(folder: string, mark: Mark): Promise<EventsRead | null> {
  await using file = await openOwn(join(folder, eventsFileOf(mark.segment)), constants.O_RDONLY);
  if (!file) return null;
  let buffer = await readAt(file, mark.offset, chunkBytes);
  if (!buffer.includes(newline) && buffer.length === chunkBytes) {
    buffer = await readAt(file, mark.offset, eventBytesMax + 1);
    if (!buffer.includes(newline) && buffer.length > eventBytesMax) {
      const corrupt = `line ${mark.seq} is longer than ${eventBytesMax} bytes`;
      return { events: [], mark, corrupt };
    }
  }
  return parseLines(buffer, mark);
}

/** The executor removes the oldest first: where this one is still there, the next one is the next number. */
async function nextSegment(folder: string, segment: number, isThere: boolean) {
  const later = (await listSegments(folder)).filter((each) => each > segment);
  const next = later.length === 0 ? null : Math.min(...later);
  return isThere && next !== segment + 1 ? null : next;
}

async function listSegments(folder: string): Promise<number[]> {
  try {
    return (await readdir(folder)).map(segmentOf).filter((segment) => segment !== null);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return [];
    throw error;
  }
}

function parseLines(buffer: Buffer, mark: Mark): EventsRead {
  const events: JobEvent[] = [];
  let { seq } = mark;
  let start = 0;
  for (let end = buffer.indexOf(newline); end >= 0; end = buffer.indexOf(newline, start)) {
    const event = parseEvent(buffer.toString("utf8", start, end));
    if (event && event.seq > seq && mark.segment > 1 && mark.offset + start === 0) {
      events.push({ seq, at: event.at, type: "gap", last: event.seq - 1, reason: removedReason });
      seq = event.seq;
    }
    const problem = problemOf(event, seq, events.at(-1));
    if (problem !== null || !event) {
      const stopped = { ...mark, offset: mark.offset + start, seq };
      return { events, mark: stopped, corrupt: problem };
    }
    events.push(event);
    start = end + 1;
    seq = lastSeqOf(event) + 1;
  }
  return { events, mark: { ...mark, offset: mark.offset + start, seq }, corrupt: null };
}

function problemOf(event: JobEvent | null, seq: number, before: JobEvent | undefined) {
  if (before?.type === "outcome") return `expected nothing after the outcome, got event ${seq}`;
  if (event?.seq === seq && lastSeqOf(event) >= seq) return null;
  const got = event ? `number ${event.seq}` : "something that is no event";
  return `expected event ${seq} in line ${seq}, got ${got}`;
}

function parseEvent(line: string): JobEvent | null {
  try {
    return JobEvent.safeParse(JSON.parse(line)).data ?? null;
  } catch {
    return null;
  }
}

async function readAt(file: FileHandle, offset: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  const { bytesRead } = await file.read(buffer, 0, length, offset);
  return buffer.subarray(0, bytesRead);
}
