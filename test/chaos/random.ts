/**
 * Randomness that a seed repeats: the same seed gives the same app, the same faults at the same points.
 * Only the machine's own timing is not repeated.
 */
import { createHash } from "node:crypto";

export interface Random {
  /** From 0 up to, not including, 1. */
  next(): number;
  /** A whole number from `low` to `high`, both included. */
  between(low: number, high: number): number;
  chance(probability: number): boolean;
  /** One of a list that is not empty. */
  pick<Item>(list: readonly Item[]): Item;
  shuffle<Item>(list: readonly Item[]): Item[];
}

/** The generator of a seed (mulberry32). */
export function createRandom(seed: string | number): Random {
  let state = createHash("sha256").update(String(seed)).digest().readUInt32LE(0);
  function next(): number {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
  const between = (low: number, high: number) => low + Math.floor(next() * (high - low + 1));
  return {
    next,
    between,
    chance: (probability) => next() < probability,
    pick(list) {
      const item = list[between(0, list.length - 1)];
      if (item === undefined) throw new Error("Expected a list that is not empty.");
      return item;
    },
    shuffle(list) {
      const left = [...list];
      return list.flatMap(() => left.splice(between(0, left.length - 1), 1));
    },
  };
}
