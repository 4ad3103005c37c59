/**
 * What one connection has to do, one thing at a time, from two lines:
 *
 *   control (hello, renew, accepted, refused, lost, offers, cancels) ──first──┐
 *   bulk    (events, in order, no faster than the rate) ─────────────later────┴──> handled
 *
 * Invariants: nothing of the control line waits behind a frame of events that has not begun; order
 * within each line is kept; bulk of one connection never takes more than its rate, on average. An idle
 * connection holds no line and no timer.
 */
export type Step = () => Promise<void>;

interface Bulk {
  readonly jobId: string | null;
  readonly bytes: number;
  readonly step: Step;
}

export interface InboxOptions {
  readonly bytesPerSecond: number;
  readonly bytesBurst: number;
  readonly onError: (error: unknown) => void;
}

export interface Inbox {
  readonly controlCount: number;
  /** Bytes of bulk that are not handled yet. */
  readonly bulkBytes: number;
  /** Goes before all bulk that waits. */
  first(step: Step): void;
  /** Goes after all else, when the rate allows. */
  later(jobId: string | null, bytes: number, step: Step): void;
  /** True while bulk of this job waits or is being handled. */
  hasBulkOf(jobId: string): boolean;
  /** Drops what waits: its agent sends it again over its next connection. */
  dropBulk(): void;
}

/** An empty one. */
export function createInbox({ bytesPerSecond, bytesBurst, onError }: InboxOptions): Inbox {
  const control: Step[] = [];
  let bulk: Bulk[] = [];
  let current: Bulk | null = null;
  let bulkBytes = 0;
  let isWorking = false;
  let timer: NodeJS.Timeout | null = null;
  let allowance = bytesBurst;
  let allowedAt = 0;

  /** How long bulk must wait; a debt is paid by waiting, so one large frame is never stuck. */
  function pauseMs(): number {
    const now = performance.now();
    const earned = ((now - allowedAt) * bytesPerSecond) / 1000;
    allowance = Math.min(bytesBurst, allowance + earned);
    allowedAt = now;
    return allowance > 0 ? 0 : Math.ceil((1 - allowance) / (bytesPerSecond / 1000));
  }

  function next(): Step | null {
    const step = control.shift();
    if (step) return step;
    const [waiting] = bulk;
    if (!waiting) return null;
    const wait = pauseMs();
    if (wait > 0) {
      timer = setTimeout(() => {
        timer = null;
        work();
      }, wait);
      return null;
    }
    bulk.shift();
    allowance -= waiting.bytes;
    current = waiting;
    return waiting.step;
  }

  async function run(): Promise<void> {
    isWorking = true;
    for (let step = next(); step; step = next()) {
      await step().catch(onError);
      if (current) bulkBytes -= current.bytes;
      current = null;
    }
    isWorking = false;
  }

  function work(): void {
    if (isWorking) return;
    if (timer) clearTimeout(timer);
    timer = null;
    void run();
  }

  return {
    get controlCount() {
      return control.length;
    },
    get bulkBytes() {
      return bulkBytes;
    },
    first(step) {
      control.push(step);
      work();
    },
    later(jobId, bytes, step) {
      bulk.push({ jobId, bytes, step });
      bulkBytes += bytes;
      work();
    },
    hasBulkOf: (jobId) => current?.jobId === jobId || bulk.some((each) => each.jobId === jobId),
    dropBulk() {
      if (timer) clearTimeout(timer);
      timer = null;
      bulk = [];
      bulkBytes = current?.bytes ?? 0;
    },
  };
}
