/**
 * The lines of one job as a stream of JSON lines, as they come. It ends when the job has ended and all
 * its lines are out. When a job is tried again, the lines of the new try follow, numbered from 1.
 */
import { type Epoch, formatEpoch } from "../../model/job.ts";
import { lastSeqOf } from "../../protocol/events.ts";
import type { ServerContext } from "../context.ts";
import { isJobFinished, readEvents } from "../log-chunks.ts";

const pageEvents = 500;
/** Where a notice was lost, lines and the job's end are found by looking: soon after a line, then less often. */
const pollMs = { first: 50, most: 1000 };
const heartbeatMs = 15_000;

export interface LogRequest {
  readonly after: number;
  readonly follow: boolean;
  readonly signal: AbortSignal;
}

/** Text to send on; it asks for no more before that is taken. */
export async function* streamLog(
  context: ServerContext,
  jobId: string,
  { after, follow, signal }: LogRequest,
): AsyncGenerator<string> {
  const bell = createBell(context, jobId, signal);
  let position: { epoch: Epoch | null; seq: number } = { epoch: null, seq: after };
  let sentAt = performance.now();
  let pauseMs = pollMs.first;
  try {
    // A blank line at once, so that the answer's head does not wait for the first line.
    if (follow) yield "\n";
    while (!signal.aborted) {
      bell.reset();
      // In this order: a job that has ended gets no more lines after this look.
      const finished = await isJobFinished(context, jobId);
      const { epoch, events, more } = await readEvents(context, jobId, {
        after: position.seq,
        limit: pageEvents,
      });
      if (isOther(position.epoch, epoch)) {
        position = { epoch, seq: 0 };
        continue;
      }
      const last = events.at(-1);
      position = { epoch, seq: last ? lastSeqOf(last) : position.seq };
      if (last) {
        yield events.map((event) => `${JSON.stringify(event)}\n`).join("");
        sentAt = performance.now();
        pauseMs = pollMs.first;
      }
      if (more) continue;
      if (finished || !follow) return;
      await bell.wait(pauseMs);
      pauseMs = Math.min(pauseMs * 2, pollMs.most);
      if (performance.now() - sentAt >= heartbeatMs) {
        yield "\n";
        sentAt = performance.now();
      }
    }
  } finally {
    bell.close();
  }
}

function isOther(known: Epoch | null, found: Epoch | null): boolean {
  return known !== null && found !== null && formatEpoch(known) !== formatEpoch(found);
}

/** Rings when the job has new lines or the caller has gone away, also for whoever waits a little later. */
function createBell(context: ServerContext, jobId: string, signal: AbortSignal) {
  let rung = false;
  let wakeUp: (() => void) | null = null;
  const ring = () => {
    rung = true;
    wakeUp?.();
  };
  const stopListening = context.wake.listen(`log:${jobId}`, ring);
  signal.addEventListener("abort", ring, { once: true });
  return {
    reset() {
      rung = signal.aborted;
    },
    async wait(timeoutMs: number): Promise<void> {
      if (rung) return;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, timeoutMs);
        wakeUp = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      wakeUp = null;
    },
    close() {
      stopListening();
      signal.removeEventListener("abort", ring);
    },
  };
}
