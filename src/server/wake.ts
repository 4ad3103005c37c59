/**
 * Wake-ups inside one server process, given after commit: whoever waits for work or for news looks
 * again at once. They carry nothing and may be lost; a slow poll is the floor under every one of them.
 */

export type WakeTopic =
  | "reconcile" // an install has something to reconcile
  | `jobs:${string}` // this queue has a job to offer, or one to cancel
  | "live" // something that people watch has changed
  | `log:${string}`; // a job has new lines

export interface Wake {
  notify(topic: WakeTopic): void;
  /** Calls back at every notice until the returned function is called. */
  listen(topic: WakeTopic, onNotice: () => void): () => void;
}

/** Notices of one process. */
export function createWake(): Wake {
  const listeners = new Map<string, Set<() => void>>();
  return {
    notify(topic) {
      for (const listener of listeners.get(topic) ?? []) listener();
    },
    listen(topic, onNotice) {
      const set = listeners.get(topic) ?? new Set();
      listeners.set(topic, set.add(onNotice));
      return () => {
        set.delete(onNotice);
        if (set.size === 0) listeners.delete(topic);
      };
    },
  };
}
