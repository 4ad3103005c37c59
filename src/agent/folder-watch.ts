/**
 * News of a job's folder as it comes, where the system gives any: an outcome does not wait for a timer.
 * Whoever watches also polls, since a watch may fail without a word.
 */
import { type FSWatcher, watch } from "node:fs";

/** A busy executor writes many lines at once: one look for all of them. */
const coalesceMs = 10;

/** Quick news where the system gives any; the poll serves where it does not. */
export function watchFolder(folder: string, changed: () => void): FSWatcher | null {
  try {
    let pending = false;
    const watcher = watch(folder, { persistent: false }, () => {
      if (pending) return;
      pending = true;
      setTimeout(() => {
        pending = false;
        changed();
      }, coalesceMs);
    });
    watcher.on("error", () => watcher.close());
    return watcher;
  } catch {
    return null;
  }
}
