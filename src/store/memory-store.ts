/**
 * A store that lasts as long as its process: the second implementation of the contract, for tests and
 * for trying plugins by hand.
 */
import { randomBytes } from "node:crypto";
import { createSealing, masterKeyBytes } from "./sealing.ts";
import {
  checkEntry,
  checkFence,
  checkOpening,
  checkVersion,
  conflictKey,
  type FenceMark,
  listMax,
  type Store,
  type StoredValue,
  type WriteOptions,
} from "./store.ts";

/** An empty store in memory. */
export function createMemoryStore(): Store {
  const values = new Map<string, StoredValue>();
  const marks = new Map<string, FenceMark>();
  const seenJobs = new Set<string>();
  const sealing = createSealing(randomBytes(masterKeyBytes));
  let newestVersion = 0;

  function guard(key: string, value: Uint8Array | null, options: WriteOptions): void {
    try {
      checkFence(options.fence, marks.get(options.fence.component) ?? null);
      checkVersion(key, options.expectedVersion, values.get(key)?.version ?? null);
    } catch (error) {
      if (value) put(conflictKey(key, options.fence, newestVersion + 1), value);
      throw error;
    }
  }

  function put(key: string, value: Uint8Array): number {
    newestVersion += 1;
    values.set(key, { value: Buffer.from(value), version: newestVersion });
    return newestVersion;
  }

  return {
    async openFence(fence) {
      const seenJob = `${fence.component}\n${fence.jobId}`;
      checkOpening(fence, marks.get(fence.component) ?? null, seenJobs.has(seenJob));
      seenJobs.add(seenJob);
      marks.set(fence.component, { jobId: fence.jobId, ...fence.epoch });
    },
    async read(key) {
      checkEntry(key, null);
      const found = values.get(key);
      return found ? { value: Buffer.from(found.value), version: found.version } : null;
    },
    async write(key, value, options) {
      checkEntry(key, value);
      guard(key, value, options);
      return put(key, value);
    },
    async remove(key, options) {
      checkEntry(key, null);
      if (values.has(key)) guard(key, null, options);
      else checkFence(options.fence, marks.get(options.fence.component) ?? null);
      values.delete(key);
    },
    async list(prefix) {
      return [...values.keys()]
        .filter((key) => key.startsWith(prefix))
        .sort()
        .slice(0, listMax);
    },
    hash: (value) => sealing.hash(value),
    async close() {},
  };
}
