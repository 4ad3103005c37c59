/**
 * Does for many at once what each asked for alone: what comes while the last batch is under way makes
 * the next one. Whoever comes alone is served at once; there is no timer.
 *
 *   add --> waiting --batch--> handled together --> its result
 *                                   |
 *                                   +-- unusual, or the batch failed --> handled alone --> its result, or its error
 *
 * Invariants: one's trouble is never another's: a batch that fails is repeated one by one, aside, while
 * the next batch goes on. Of one key, one after another: no batch has two, and none that is handled alone
 * is overtaken.
 */
import type { Logger } from "pino";

/** Left for `handleAlone`. */
export const alone = Symbol("alone");

export interface GatheringOptions<Item, Result> {
  readonly log: Pick<Logger, "warn">;
  readonly batchMax: number;
  keyOf(item: Item): string;
  /** All or nothing: what throws has done nothing. A result per item, in their order. */
  handle(items: readonly Item[]): Promise<readonly (Result | typeof alone)[]>;
  handleAlone(item: Item): Promise<Result>;
}

export interface Gathering<Item, Result> {
  add(item: Item): Promise<Result>;
}

interface Waiting<Item, Result> {
  readonly item: Item;
  readonly resolve: (result: Result | Promise<Result>) => void;
}

/** So that a failed batch leaves room for others at the database. */
const aloneAtOnce = 4;

/** Nothing waits yet. */
export function createGathering<Item, Result>(
  options: GatheringOptions<Item, Result>,
): Gathering<Item, Result> {
  let waiting: Waiting<Item, Result>[] = [];
  /** Keys of what is handled alone now. */
  const busy = new Set<string>();
  let isWorking = false;

  function takeBatch(): Waiting<Item, Result>[] {
    const keys = new Set<string>(busy);
    const batch: Waiting<Item, Result>[] = [];
    const rest: Waiting<Item, Result>[] = [];
    for (const each of waiting) {
      const key = options.keyOf(each.item);
      const isTaken = batch.length < options.batchMax && !keys.has(key);
      (isTaken ? batch : rest).push(each);
      keys.add(key);
    }
    waiting = rest;
    return batch;
  }

  async function handleTogether(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    const left: Waiting<Item, Result>[] = [];
    try {
      const results = await options.handle(batch.map(({ item }) => item));
      for (const [index, each] of batch.entries()) {
        const result = results[index] ?? alone;
        if (result === alone) left.push(each);
        else each.resolve(result);
      }
    } catch (error) {
      options.log.warn({ err: error, count: batch.length }, "A batch failed; handled one by one");
      left.push(...batch);
    }
    for (const { item } of left) busy.add(options.keyOf(item));
    const lines = Math.min(aloneAtOnce, left.length);
    for (let line = 0; line < lines; line++) void handleEach(left);
  }

  async function handleEach(left: Waiting<Item, Result>[]): Promise<void> {
    for (let each = left.shift(); each; each = left.shift()) {
      const result = options.handleAlone(each.item);
      each.resolve(result);
      await result.catch(() => {}); // its own to tell
      busy.delete(options.keyOf(each.item));
      start();
    }
  }

  async function run(): Promise<void> {
    for (let batch = takeBatch(); batch.length > 0; batch = takeBatch()) {
      await handleTogether(batch);
    }
    isWorking = false;
  }

  function start(): void {
    if (isWorking) return;
    isWorking = true;
    void run();
  }

  return {
    add(item) {
      const { promise, resolve } = Promise.withResolvers<Result>();
      waiting.push({ item, resolve });
      start();
      return promise;
    },
  };
}
