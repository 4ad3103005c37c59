/**
 * The lane of event frames on one connection, beside which everything else overtakes.
 *
 *   put ──> held (in order, one of each job at a time) ──credit and an empty buffer──> out ──ack──> free
 *
 * Invariants: the bytes of frames that are out never exceed the server's credit, except by a single
 * frame that is alone; little of them is ever ahead of a lease's renewal in the socket's buffer; and a
 * job that floods cannot starve the others, since each waits for its turn.
 */
import { lastSeqOf } from "../protocol/events.ts";
import type { AgentFrame } from "../protocol/frames.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { sameTry } from "./offer.ts";

/** While more than this is unsent, events wait, so that a renewal is never far back in the line. */
const bufferedBytesMax = 64 * 1024;

export type EventsFrame = Extract<AgentFrame, { type: "events" }>;

interface LaneFrame {
  readonly key: JobKey;
  readonly lastSeq: number;
  readonly bytes: number;
}

export interface EventLane {
  /** How much may be out; there is no limit before the server names one. */
  setCredit(bytes: number): void;
  put(frame: EventsFrame): void;
  acknowledge(key: JobKey, acknowledged: number): void;
  /** False while a frame of this job (of any job, where none is named) waits for its turn. */
  hasRoom(key?: JobKey): boolean;
}

/** A lane over a socket: `write` sends a text and says when it left the buffer. */
export function createEventLane(socket: {
  write(text: string, written: () => void): void;
  bufferedBytes(): number;
}): EventLane {
  let creditBytes = Number.POSITIVE_INFINITY;
  let outBytes = 0;
  let out: LaneFrame[] = [];
  const held: (LaneFrame & { readonly text: string })[] = [];

  function flush(): void {
    for (let next = held[0]; next; next = held[0]) {
      if (out.length > 0 && outBytes + next.bytes > creditBytes) return;
      if (socket.bufferedBytes() > bufferedBytesMax) return; // `written` comes back here
      held.shift();
      const { text, ...frame } = next;
      out.push(frame);
      outBytes += frame.bytes;
      socket.write(text, flush);
    }
  }

  return {
    setCredit(bytes) {
      creditBytes = bytes;
      flush();
    },
    put(frame) {
      const last = frame.events.at(-1);
      if (!last) return;
      const text = JSON.stringify(frame);
      const { jobId, epoch } = frame;
      const bytes = Buffer.byteLength(text);
      held.push({ key: { jobId, epoch }, lastSeq: lastSeqOf(last), bytes, text });
      flush();
    },
    acknowledge(key, acknowledged) {
      out = out.filter((frame) => {
        const isSafe = frame.lastSeq <= acknowledged && sameTry(frame.key, key);
        if (isSafe) outBytes -= frame.bytes;
        return !isSafe;
      });
      flush();
    },
    hasRoom: (key) => (key ? !held.some((frame) => sameTry(frame.key, key)) : held.length === 0),
  };
}
