/**
 * Wake-ups, given after commit: whoever waits for work or for news looks again at once. They carry
 * nothing and may be lost; a slow poll is the floor under every one of them. `wake-relay.ts` passes
 * them on to the other servers of the same database.
 */

export type WakeTopic =
  | "reconcile" // an install has something to reconcile
  | `jobs:${string}` // this queue has a job to offer, or one to cancel
  | `agent:${string}` // this agent's row has changed: superseded, revoked, drained
  | "live" // something that people watch has changed
  | `log:${string}`; // a job has new lines

/** Every topic at once, where it is not known which ones were missed. */
export const everyTopic = "*";

export interface Wake {
  /** Wakes whoever listens, here and on every other server. */
  notify(topic: WakeTopic): void;
  /** Wakes whoever listens in this process alone: a notice from another server, or of a poll. */
  ring(topic: WakeTopic | typeof everyTopic): void;
  /** Calls back at every notice until the returned function is called. */
  listen(topic: WakeTopic, onNotice: () => void): () => void;
  /** Hears the topic of every `notify` of this process, to pass it on; until the returned function is called. */
  tap(onNotify: (topic: WakeTopic) => void): () => void;
}

/** Notices of one process. */
export function createWake(): Wake {
  const listeners = new Map<string, Set<() => void>>();
  const taps = new Set<(topic: WakeTopic) => void>();

  function ring(topic: WakeTopic | typeof everyTopic): void {
    if (topic === everyTopic) {
      for (const set of listeners.values()) for (const listener of set) listener();
      return;
    }
    for (const listener of listeners.get(topic) ?? []) listener();
  }

  return {
    notify(topic) {
      ring(topic);
      for (const tap of taps) tap(topic);
    },
    ring,
    listen(topic, onNotice) {
      const set = listeners.get(topic) ?? new Set();
      listeners.set(topic, set.add(onNotice));
      return () => {
        set.delete(onNotice);
        if (set.size === 0 && listeners.get(topic) === set) listeners.delete(topic);
      };
    },
    tap(onNotify) {
      taps.add(onNotify);
      return () => taps.delete(onNotify);
    },
  };
}
