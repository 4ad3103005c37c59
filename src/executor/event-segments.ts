/**
 * The files that a job's events are written to, one after the other: `events.ndjson`, then
 * `events.2.ndjson` and so on, each closed when it is large enough.
 *
 * Invariants: a segment is whole lines, also when the disk filled up in the middle of one, and is never
 * written again once the next one exists. An agent that is away for days does not fill the disk: the
 * oldest closed segments go, and their numbers are missing. The outcome has room kept for it.
 */
import {
  closeSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readdirSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { eventsFileOf, jobFiles, segmentOf } from "../protocol/job-folder.ts";

export interface SegmentLimits {
  /** A segment is closed once it has reached this size. */
  readonly segmentBytes: number;
  /** What closed segments may take together. */
  readonly folderBytes: number;
  /** What is kept free for the outcome: as much as the largest frame. */
  readonly ballastBytes: number;
}

export interface SegmentWriter {
  /** Writes whole lines, or nothing: false when there is no room. */
  write(text: string): boolean;
  /** Gives up the room that was kept; it is for the outcome alone. */
  releaseBallast(): void;
  /** False when what was written is not on the disk yet. */
  flush(): boolean;
  close(): void;
}

/** Opens the first segment and sets room aside; throws when there is not even that much. */
export function openSegments(folder: string, limits: SegmentLimits): SegmentWriter {
  const ballast = join(folder, jobFiles.ballast);
  writeFileSync(ballast, new Uint8Array(limits.ballastBytes), { mode: 0o600 });
  let segment = 1;
  let file = openSync(join(folder, eventsFileOf(segment)), "a", 0o600);
  let size = 0;

  /** The next segment, if it can be made; otherwise this one goes on. */
  function turnOver(): void {
    try {
      // Appending: after a line that was cut back, the next one begins where the file ends.
      const next = openSync(join(folder, eventsFileOf(segment + 1)), "ax", 0o600);
      closeSync(file);
      file = next;
      segment += 1;
      size = 0;
      removeOldest(folder, segment, Math.floor(limits.folderBytes / limits.segmentBytes));
    } catch {
      // A full disk: the lines themselves will say so.
    }
  }

  return {
    write(text) {
      if (size >= limits.segmentBytes) turnOver();
      const bytes = Buffer.from(text);
      try {
        for (let done = 0; done < bytes.length; ) done += writeSync(file, bytes, done);
        size += bytes.length;
        return true;
      } catch {
        cutBack(file, size);
        return false;
      }
    },
    releaseBallast: () => rmSync(ballast, { force: true }),
    flush() {
      try {
        fsyncSync(file);
        return true;
      } catch {
        return false;
      }
    },
    close: () => closeSync(file),
  };
}

/** What was written of a line that did not fit would be taken for the beginning of the next one. */
function cutBack(file: number, size: number): void {
  try {
    ftruncateSync(file, size);
  } catch {
    // Making a file shorter needs no room; a disk that refuses even this refuses the outcome too.
  }
}

function removeOldest(folder: string, current: number, closedMax: number): void {
  const closed = readdirSync(folder)
    .map(segmentOf)
    .filter((segment) => segment !== null && segment < current)
    .sort((a, b) => Number(a) - Number(b));
  for (const segment of closed.slice(0, Math.max(0, closed.length - closedMax))) {
    if (segment !== null) rmSync(join(folder, eventsFileOf(segment)), { force: true });
  }
}
