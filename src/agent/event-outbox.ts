/**
 * One job's events on their way to the server: read from its file, sent in batches, resent after a
 * lost connection from what the server has acknowledged. The file is the spool; little is in memory.
 *
 * Invariant: every event is sent at least once, in order; the window of unacknowledged batches is
 * bounded; nothing counts as safe before the server has said so.
 */
import type { JobEvent } from "../protocol/events.ts";
import { type Mark, type ReadEvent, readEvents, startMark } from "./events-file.ts";

const batchEventsMax = 1000;
const batchBytesMax = 256 * 1024;
const batchesInFlightMax = 4;

export interface EventOutbox {
  /** A new connection, whose server has everything up to this number. */
  resume(acknowledged: number): void;
  acknowledge(acknowledged: number): void;
  /** Reads and sends until the window is full, `send` refuses or nothing is left. */
  pump(send: (events: JobEvent[]) => boolean): Promise<void>;
  state(): {
    readonly outcomeRead: boolean;
    readonly outcomeAcknowledged: boolean;
    /** All that was in the file at the last look is safe. */
    readonly drained: boolean;
    readonly corrupt: string | null;
  };
}

/** An outbox over the events of one folder. */
export function createEventOutbox(folder: string): EventOutbox {
  let connection = 0;
  let acknowledged = 0;
  /** The newest place from which everything earlier is acknowledged. */
  let safeMark: Mark = startMark;
  let readMark: Mark = startMark;
  let unsent: ReadEvent[] = [];
  let inFlight: Mark[] = [];
  let atEnd = false;
  let outcomeSeq: number | null = null;
  let corrupt: string | null = null;

  async function fill(): Promise<boolean> {
    const current = connection;
    const read = await readEvents(folder, readMark);
    if (current !== connection) return false;
    readMark = read.mark;
    corrupt = read.corrupt;
    const last = read.events.at(-1)?.event;
    if (last?.type === "outcome") outcomeSeq = last.seq;
    unsent.push(...read.events.filter(({ event }) => event.seq > acknowledged));
    atEnd = read.events.length === 0;
    return !atEnd;
  }

  return {
    resume(from) {
      connection++;
      if (from + 1 < safeMark.seq) safeMark = startMark;
      acknowledged = from;
      readMark = safeMark;
      unsent = [];
      inFlight = [];
      atEnd = false;
    },
    acknowledge(claimed) {
      const sent = (inFlight.at(-1)?.seq ?? 1) - 1;
      const upTo = Math.min(claimed, Math.max(sent, acknowledged)); // nobody has what was not sent
      acknowledged = Math.max(acknowledged, upTo);
      safeMark = inFlight.findLast(({ seq }) => seq <= upTo + 1) ?? safeMark;
      inFlight = inFlight.filter(({ seq }) => seq > upTo + 1);
    },
    async pump(send) {
      const current = connection;
      while (inFlight.length < batchesInFlightMax) {
        if (unsent.length === 0) {
          const more = await fill();
          if (current !== connection || !more) return;
          continue;
        }
        const batch = takeBatch(unsent);
        const last = batch.at(-1);
        if (!last || !send(batch.map(({ event }) => event))) return;
        unsent = unsent.slice(batch.length);
        inFlight.push({ offset: last.endOffset, seq: last.event.seq + 1 });
      }
    },
    state: () => ({
      outcomeRead: outcomeSeq !== null,
      outcomeAcknowledged: outcomeSeq !== null && acknowledged >= outcomeSeq,
      drained: atEnd && unsent.length === 0 && inFlight.length === 0,
      corrupt,
    }),
  };
}

/** At least one event, so that a large one goes alone. */
function takeBatch(events: readonly ReadEvent[]): ReadEvent[] {
  let bytes = 0;
  const count = events.findIndex((event, index) => {
    bytes += event.bytes;
    return index > 0 && (bytes > batchBytesMax || index >= batchEventsMax);
  });
  return events.slice(0, count < 0 ? events.length : count);
}
