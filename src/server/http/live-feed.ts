/**
 * What people watch, as server-sent events. All listeners share one computation: it runs when
 * something changed or every two seconds, and is sent when the result differs.
 *
 * Invariant: a slow listener costs one pending text, never a growing buffer: it gets the newest state
 * when it can take it, and misses what lay between.
 */
import { Readable } from "node:stream";
import type { ServerContext } from "../context.ts";
import { viewLive } from "../views.ts";

export interface LiveFeed {
  /** A stream of events that ends with the signal, after a while, or with the feed. */
  open(signal: AbortSignal): Readable;
  close(): void;
}

const gapMs = 100;
/** The database is left alone for this many times as long as a look at it took. */
const restFactor = 4;
const pollMs = 2000;
const heartbeatMs = 15_000;
/** Then the browser connects again, and shows that its session is still good. */
const streamMs = 10 * 60_000;

/** The feed of one server process. */
export function createLiveFeed(context: ServerContext): LiveFeed {
  const listeners = new Set<Listener>();
  let newest: string | null = null;
  let stopWatching: (() => void) | null = null;

  async function refresh() {
    try {
      const text = `data: ${JSON.stringify(await viewLive(context))}\n\n`;
      if (text === newest) return;
      newest = text;
      for (const listener of listeners) listener.send(text);
    } catch (error) {
      context.log.warn({ err: error }, "The live view could not be read");
    }
  }

  function leave(listener: Listener) {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    stopWatching?.();
    stopWatching = null;
    newest = null;
  }

  return {
    open(signal) {
      const listener = createListener(signal, () => leave(listener));
      listeners.add(listener);
      if (newest !== null) listener.send(newest);
      stopWatching ??= watch(context, refresh);
      return listener.stream;
    },
    close() {
      for (const listener of listeners) listener.end();
    },
  };
}

interface Listener {
  readonly stream: Readable;
  send(text: string): void;
  end(): void;
}

function createListener(signal: AbortSignal, onClose: () => void): Listener {
  let pending: string | null = "retry: 1000\n\n";
  let wanted = false;
  const stream = new Readable({
    read() {
      wanted = true;
      flush();
    },
  });
  function flush() {
    if (!wanted || pending === null) return;
    const text = pending;
    pending = null;
    wanted = false;
    stream.push(text);
  }
  function send(text: string) {
    // Only the first greeting is worth more than what replaces it.
    pending = pending?.startsWith("retry:") ? pending + text : text;
    flush();
  }
  function end() {
    stream.push(null);
  }
  const heartbeat = setInterval(() => {
    if (pending === null) send(": still here\n\n");
  }, heartbeatMs);
  const ending = setTimeout(end, streamMs);
  const abort = () => stream.destroy();
  signal.addEventListener("abort", abort, { once: true });
  stream.once("close", () => {
    clearInterval(heartbeat);
    clearTimeout(ending);
    signal.removeEventListener("abort", abort);
    onClose();
  });
  return { stream, send, end };
}

/** Calls `refresh` at once, when something changed, and every two seconds; never two at a time. */
function watch(context: ServerContext, refresh: () => Promise<void>): () => void {
  let timer: NodeJS.Timeout | null = null;
  let running = false;
  let stopped = false;
  let again = false;
  let restMs = 0;

  function ask() {
    if (running) again = true;
    else timer ??= setTimeout(run, restMs);
  }
  async function run() {
    timer = null;
    running = true;
    again = false;
    const startedAt = performance.now();
    await refresh();
    restMs = Math.max(gapMs, restFactor * (performance.now() - startedAt));
    running = false;
    if (again && !stopped) ask();
  }
  const poll = setInterval(ask, pollMs);
  const stopListening = context.wake.listen("live", ask);
  ask();
  return () => {
    stopped = true;
    clearInterval(poll);
    if (timer) clearTimeout(timer);
    stopListening();
  };
}
