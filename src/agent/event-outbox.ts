/**
 * One job's events on their way to the server: imported from the executor's files into the spool, sent
 * from there in batches, resent after a lost connection from what the server has acknowledged.
 *
 * Invariant: every number is sent at least once, in order, as an event or inside a gap; the window of
 * unacknowledged batches is bounded; nothing counts as safe before the server has said so. A closed file
 * goes only after its lines are in the spool.
 */
import type { Outcome } from "../model/job.ts";
import { type JobEvent, lastSeqOf } from "../protocol/events.ts";
import { type Mark, readEvents, removeSegmentsBefore } from "./events-file.ts";
import type { JobSpool } from "./spool.ts";

const batchEventsMax = 1000;
const batchBytesMax = 256 * 1024;
const batchesInFlightMax = 4;
/** What is imported before the rest of the agent has its turn again. */
const chunksMax = 4;
/** Servers of protocol 1 know no gap, and take no hole. */
const gapProtocol = 2;

export interface EventOutbox {
  /** Takes new lines from the files; true when there may be more at once. */
  importNew(): Promise<boolean>;
  /** Puts an outcome in the executor's place. Only after the executor was proved gone and all is imported. */
  finish(outcome: Outcome, at: Date): Promise<void>;
  /** A new connection, whose server has everything up to this number. */
  resume(acknowledged: number): void;
  acknowledge(acknowledged: number): void;
  /** Sends until the window is full, `send` refuses or nothing is left. */
  pump(protocol: number, send: (events: JobEvent[]) => boolean): void;
  state(): {
    readonly mark: Mark;
    readonly outcomeRead: boolean;
    readonly outcomeAcknowledged: boolean;
    /** All that was in the files at the last look is safe. */
    readonly drained: boolean;
    readonly corrupt: string | null;
  };
}

/** An outbox over the events of one folder; `amend` may change what the executor said. */
export function createEventOutbox(
  spool: JobSpool,
  folder: string,
  amend: (event: JobEvent) => JobEvent = (event) => event,
): EventOutbox {
  let { mark, outcomeSeq } = spool.state();
  let corrupt: string | null = null;
  let cleanedTo = 1;
  let atEnd = false;
  let acknowledged = 0;
  let sent = 0;
  /** The last number of every batch that is under way. */
  let inFlight: number[] = [];

  async function append(events: readonly JobEvent[], next: Mark): Promise<void> {
    try {
      if (await spool.append(events, next)) mark = next;
    } finally {
      // A commit that failed may have come through all the same: what the spool says is true.
      ({ mark, outcomeSeq } = spool.state());
    }
  }

  async function importChunk(): Promise<boolean> {
    const read = await readEvents(folder, mark);
    atEnd = read.events.length === 0;
    if (!atEnd) await append(read.events.map(amend), read.mark);
    ({ corrupt } = read);
    if (cleanedTo < mark.segment) {
      await removeSegmentsBefore(folder, mark.segment);
      cleanedTo = mark.segment;
    }
    return !atEnd && corrupt === null;
  }

  return {
    async importNew() {
      for (let chunk = 0; chunk < chunksMax; chunk++) {
        if (outcomeSeq !== null || corrupt !== null || !(await importChunk())) return false;
      }
      return true;
    },
    async finish(outcome, at) {
      if (outcomeSeq !== null) return;
      const event = { seq: mark.seq, at: at.toISOString(), type: "outcome", outcome } as JobEvent;
      await append([event], { ...mark, seq: mark.seq + 1 });
    },
    resume(from) {
      acknowledged = from;
      sent = from;
      inFlight = [];
      spool.acknowledge(from);
    },
    acknowledge(claimed) {
      const upTo = Math.min(claimed, sent); // nobody has what was not sent
      if (upTo <= acknowledged) return;
      acknowledged = upTo;
      inFlight = inFlight.filter((last) => last > upTo);
      spool.acknowledge(upTo);
    },
    pump(protocol, send) {
      while (inFlight.length < batchesInFlightMax) {
        const rows = spool.read(sent, batchEventsMax, batchBytesMax);
        const batch = asTold(rows, sent, protocol);
        const last = batch.at(-1);
        if (!last || !send(batch)) return;
        sent = lastSeqOf(last);
        inFlight.push(sent);
      }
    },
    state: () => ({
      mark,
      outcomeRead: outcomeSeq !== null,
      outcomeAcknowledged: outcomeSeq !== null && acknowledged >= outcomeSeq,
      drained: (atEnd || outcomeSeq !== null) && acknowledged >= mark.seq - 1,
      corrupt,
    }),
  };
}

/**
 * Rows as the server is told them after number `sent`: a gap that it knows a part of begins later, what
 * it acknowledged once and lost again (restored from an older back-up) is a gap too. For protocol 1 a
 * gap becomes a short line for each of its numbers, as many as fit into a batch.
 */
function asTold(rows: readonly JobEvent[], sent: number, protocol: number): JobEvent[] {
  const [first] = rows;
  if (!first) return [];
  const told: JobEvent[] = [];
  if (first.seq > sent + 1) {
    const reason = "The server had these lines before, and the agent no longer has them.";
    told.push({ seq: sent + 1, at: first.at, type: "gap", last: first.seq - 1, reason });
  }
  for (const row of rows) told.push(row.seq <= sent ? { ...row, seq: sent + 1 } : row);
  const known = protocol >= gapProtocol ? told : told.flatMap((event) => spellOut(event));
  return known.slice(0, batchEventsMax);
}

function spellOut(event: JobEvent): JobEvent[] {
  if (event.type !== "gap") return [event];
  const count = Math.min(event.last - event.seq + 1, batchEventsMax);
  const { at, seq } = event;
  return Array.from({ length: count }, (_, index) => ({
    seq: seq + index,
    at,
    type: "log",
    stream: "system",
    line: "(a line gave way)",
  }));
}
