/** Gathering: alone at once, many together, and one's trouble is never another's. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { alone, createGathering } from "./gathering.ts";

const log = { warn: () => {} };

test("the first is served at once, and all that come meanwhile are served together, in their order", async () => {
  const { gathering, batches } = create(async (items) => items);

  const results = await Promise.all(["a", "b", "c", "d"].map((item) => gathering.add(item)));

  assert.deepEqual(results, ["a", "b", "c", "d"]);
  assert.deepEqual(batches, [["a"], ["b", "c"], ["d"]]);
});

test("no batch has two of one key, and they keep their order", async () => {
  const { gathering, batches } = create(async (items) => items);

  await Promise.all(["a1", "b1", "b2", "c1"].map((item) => gathering.add(item)));

  assert.deepEqual(batches, [["a1"], ["b1", "c1"], ["b2"]]);
});

test("a batch that fails is repeated one by one, and only what fails again has failed", async () => {
  const { gathering, single } = create(async (items) => {
    if (items.includes("b")) throw new Error("The batch failed.");
    return items;
  });

  const results = await Promise.allSettled(["a", "b", "c"].map((item) => gathering.add(item)));

  assert.deepEqual(
    results.map(({ status }) => status),
    ["fulfilled", "rejected", "fulfilled"],
  );
  assert.deepEqual(single, ["b", "c"]);
});

test("what is handled alone is not overtaken by the next of its key, and holds up no other", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const { gathering, batches } = create(
    async (items) => items.map((item) => (item === "a1" ? alone : item)),
    promise,
  );

  const first = gathering.add("a1");
  const second = gathering.add("a2");
  assert.equal(await gathering.add("b1"), "b1");
  assert.deepEqual(batches, [["a1"], ["b1"]]);
  resolve();

  assert.deepEqual(await Promise.all([first, second]), ["a1", "a2"]);
  assert.deepEqual(batches, [["a1"], ["b1"], ["a2"]]);
});

/** Keys are first letters; alone, `b` fails. */
function create(
  handle: (items: readonly string[]) => Promise<readonly (string | typeof alone)[]>,
  beforeAlone: Promise<void> = Promise.resolve(),
) {
  const batches: string[][] = [];
  const single: string[] = [];
  const gathering = createGathering<string, string>({
    log,
    batchMax: 2,
    keyOf: (item) => item.slice(0, 1),
    async handle(items) {
      batches.push([...items]);
      return handle(items);
    },
    async handleAlone(item) {
      single.push(item);
      await beforeAlone;
      if (item === "b") throw new Error("It is bad.");
      return item;
    },
  });
  return { gathering, batches, single };
}
