/**
 * Wake-ups between the servers of one database: one coalesced NOTIFY per tick, on a connection of its
 * own that also listens, and that comes back by itself.
 *
 * Invariants: never a NOTIFY inside a job's transaction, never one per job (it takes a lock of the
 * whole database until commit); nothing waits for it; whatever was missed while the connection was
 * down is made good by looking at everything once.
 */
import pg from "pg";
import type { Logger } from "pino";
import type { Progress } from "./context.ts";
import { everyTopic, type Wake } from "./wake.ts";
import { type ProgressNote, progressMax, readNote, topicsMax, writeNotes } from "./wake-notes.ts";

export const wakeChannel = "landfall_wake";

const tickMs = 50;
const connectMs = 10_000;
/** A connection that is half dead hears nothing, and says so only when it is asked. */
const probeMs = 15_000;
const queryMs = 10_000;
const backoffMs = { first: 100, most: 5000 };
/** Progress of this many jobs on other servers is remembered. */
const foreignProgressMax = 20_000;

export interface WakeRelay {
  /** Resolves when the first connection listens. */
  readonly ready: Promise<void>;
  stop(): Promise<void>;
}

export interface RelayOptions {
  readonly connection: pg.ClientConfig;
  readonly wake: Wake;
  readonly progress: Map<string, Progress>;
  readonly log: Logger;
}

/** Starts it; it goes on until it is stopped. */
export function startWakeRelay({ connection, wake, progress, log }: RelayOptions): WakeRelay {
  /** The newest connection, and whether it listens already; older ones have no say. */
  let client: pg.Client | null = null;
  let isListening = false;
  let pending = new Set<string>();
  /** What other servers know: told by this one, or heard from them. */
  const told = new Map<string, Progress>();
  let timer: NodeJS.Timeout | null = null;
  let sentAt = Number.NEGATIVE_INFINITY;
  let isSending = false;
  let isStopped = false;
  let failures = 0;
  let retry: NodeJS.Timeout | null = null;
  const { promise: ready, resolve: setReady } = Promise.withResolvers<void>();

  function schedule(): void {
    if (timer || isSending || isStopped || !isListening || pending.size === 0) return;
    timer = setTimeout(send, Math.max(0, sentAt + tickMs - performance.now()));
  }

  async function send(): Promise<void> {
    timer = null;
    const [topics, via] = [pending, client];
    if (!via || !isListening) return;
    isSending = true;
    sentAt = performance.now();
    pending = new Set();
    try {
      const notes = writeNotes(topics, topics.has("live") ? newProgress(progress, told) : []);
      await via.query("select pg_notify($1, note) from unnest($2::text[]) as note", [
        wakeChannel,
        notes,
      ]);
    } catch (error) {
      for (const topic of topics) pending.add(topic);
      fail(via, error);
    }
    isSending = false;
    schedule();
  }

  function hear(text: string): void {
    const note = readNote(text);
    for (const [jobId, value] of note.progress) {
      if (value && told.size < foreignProgressMax) {
        told.set(jobId, value);
        progress.set(jobId, value);
      } else {
        told.delete(jobId);
        progress.delete(jobId);
      }
    }
    for (const topic of note.topics) wake.ring(topic);
  }

  async function connect(): Promise<void> {
    const next = new pg.Client({
      application_name: "landfall wake",
      connectionTimeoutMillis: connectMs,
      query_timeout: queryMs,
      keepAlive: true,
      ...connection,
    });
    client = next;
    next.on("error", (error) => fail(next, error));
    next.on("end", () => fail(next, new Error("The connection ended.")));
    try {
      await next.connect();
      const ownId = (await next.query<{ pid: number }>("select pg_backend_pid() as pid")).rows[0];
      next.on("notification", ({ processId, payload = "" }) => {
        if (processId !== ownId?.pid) hear(payload);
      });
      // A notice that a crash of the database loses is one that nobody could have acted on.
      await next.query("set synchronous_commit = off");
      await next.query(`listen ${wakeChannel}`);
    } catch (error) {
      return fail(next, error);
    }
    if (isStopped || next !== client) return;
    isListening = true;
    // Only the first time is there nothing that may have been missed.
    if (failures > 0) wake.ring(everyTopic);
    failures = 0;
    setReady();
    schedule();
  }

  function fail(which: pg.Client, error: unknown): void {
    if (isStopped || which !== client) return;
    client = null;
    isListening = false;
    failures += 1;
    log.warn({ err: error, failures }, "The connection for wake-ups broke; connecting again");
    void which.end().catch(() => {});
    const pauseMs = Math.min(backoffMs.most, backoffMs.first * 2 ** Math.min(failures, 10));
    retry = setTimeout(connect, pauseMs);
  }

  const stopTap = wake.tap((topic) => {
    pending.add(topic);
    if (pending.size > topicsMax) pending = new Set([everyTopic, "live"]);
    schedule();
  });
  const probe = setInterval(() => {
    const probed = isListening ? client : null;
    probed?.query("select 1").catch((error: unknown) => fail(probed, error));
  }, probeMs);
  void connect();
  return {
    ready,
    async stop() {
      isStopped = true;
      stopTap();
      clearInterval(probe);
      if (timer) clearTimeout(timer);
      if (retry) clearTimeout(retry);
      await client?.end().catch(() => {});
    },
  };
}

/** What has changed since the others were told; it counts as told from now on. */
function newProgress(
  progress: ReadonlyMap<string, Progress>,
  told: Map<string, Progress>,
): ProgressNote[] {
  const notes: ProgressNote[] = [];
  for (const [jobId, value] of progress) {
    if (notes.length >= progressMax) return notes;
    if (told.get(jobId) === value) continue;
    told.set(jobId, value);
    notes.push([jobId, value]);
  }
  for (const jobId of told.keys()) {
    if (progress.has(jobId)) continue;
    told.delete(jobId);
    notes.push([jobId, null]);
  }
  return notes;
}
