/**
 * The suite that every store passes. `open` gives a new handle on the same values each time it is
 * called, as a second process would have.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobId } from "../model/ids.ts";
import { type Fence, keyLengthMax, type Store } from "./store.ts";

const encode = (text: string) => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array | undefined) => (bytes ? new TextDecoder().decode(bytes) : null);

/** Registers the suite for one implementation; each test gets a store of its own. */
export function testStore(
  name: string,
  withStores: (use: (first: Store, second: Store) => Promise<void>) => Promise<void>,
): void {
  const check = (sentence: string, use: (first: Store, second: Store) => Promise<void>) =>
    test(`${name}: ${sentence}`, () => withStores(use));

  check("what is written is read, also through another handle", async (first, second) => {
    await first.openFence(fenceOf("db", "a"));

    const version = await first.write("state/db", encode("one"), {
      expectedVersion: null,
      fence: fenceOf("db", "a"),
    });

    const found = await second.read("state/db");
    assert.equal(decode(found?.value), "one");
    assert.equal(found?.version, version);
    assert.equal(await second.read("state/other"), null);
  });

  check("of many who write on the same version, one succeeds", async (first, second) => {
    const fence = fenceOf("db", "a");
    await first.openFence(fence);
    const version = await first.write("k", encode("0"), { expectedVersion: null, fence });

    const results = await Promise.allSettled(
      [first, second, first, second].map((store, index) =>
        store.write("k", encode(`${index + 1}`), { expectedVersion: version, fence }),
      ),
    );

    assert.equal(results.filter((result) => result.status === "fulfilled").length, 1);
    const refusals = results.filter((result) => result.status === "rejected");
    for (const refusal of refusals) assert.equal(refusal.reason.code, "conflict");
    assert.equal((await first.list("conflicts/k/")).length, 3);
  });

  check("a key that must not exist is not overwritten", async (first) => {
    const fence = fenceOf("db", "a");
    await first.openFence(fence);
    await first.write("k", encode("old"), { expectedVersion: null, fence });

    await assert.rejects(first.write("k", encode("new"), { expectedVersion: null, fence }), {
      code: "conflict",
    });

    assert.equal(decode((await first.read("k"))?.value), "old");
  });

  check(
    "an older try of a job writes nothing, and what it wanted to write is kept",
    async (first, second) => {
      const old = fenceOf("db", "a", 1);
      await first.openFence(old);
      await second.openFence(fenceOf("db", "a", 2));

      await assert.rejects(
        first.write("state/db", encode("late"), { expectedVersion: "any", fence: old }),
        {
          code: "conflict",
        },
      );

      assert.equal(await second.read("state/db"), null);
      const [kept = ""] = await second.list("conflicts/state/db/");
      assert.equal(decode((await second.read(kept))?.value), "late");
      await assert.rejects(first.remove("state/db", { expectedVersion: "any", fence: old }), {
        code: "conflict",
      });
      await assert.rejects(first.openFence(old), { code: "conflict" });
    },
  );

  check(
    "a later job takes over with a small epoch of its own, and its forerunner never returns",
    async (first) => {
      const forerunner = fenceOf("db", "a", 7);
      await first.openFence(forerunner);

      const later = fenceOf("db", "b", 1);
      await first.openFence(later);
      await first.write("k", encode("later"), { expectedVersion: null, fence: later });

      await assert.rejects(first.openFence(fenceOf("db", "a", 8)), { code: "conflict" });
      await assert.rejects(
        first.write("k", encode("x"), { expectedVersion: "any", fence: forerunner }),
        {
          code: "conflict",
        },
      );
    },
  );

  check("a job of an older generation never takes over", async (first) => {
    await first.openFence(fenceOf("db", "a", 1, 2));

    await assert.rejects(first.openFence(fenceOf("db", "b", 9, 1)), { code: "conflict" });
  });

  check("fences of different components do not touch each other", async (first) => {
    await first.openFence(fenceOf("db", "a", 5));
    await first.openFence(fenceOf("web", "b", 1));

    await first.write("state/db", encode("x"), {
      expectedVersion: null,
      fence: fenceOf("db", "a", 5),
    });
    await first.write("state/web", encode("y"), {
      expectedVersion: null,
      fence: fenceOf("web", "b", 1),
    });

    assert.deepEqual(await first.list("state/"), ["state/db", "state/web"]);
  });

  check("a write without an open fence is refused", async (first) => {
    await assert.rejects(
      first.write("k", encode("x"), { expectedVersion: "any", fence: fenceOf("db", "a") }),
      { code: "conflict" },
    );
  });

  check("versions do not repeat after a removal, and removing twice is harmless", async (first) => {
    const fence = fenceOf("db", "a");
    await first.openFence(fence);
    const before = await first.write("k", encode("x"), { expectedVersion: null, fence });

    await first.remove("k", { expectedVersion: before, fence });
    await first.remove("k", { expectedVersion: before, fence });
    assert.equal(await first.read("k"), null);

    const after = await first.write("k", encode("x"), { expectedVersion: null, fence });
    assert(after > before);
  });

  check("the hash is the same for the same value, and keyed", async (first, second) => {
    assert.equal(first.hash("hunter2"), second.hash(encode("hunter2")));
    assert.notEqual(first.hash("hunter2"), first.hash("hunter3"));
    await withStores(async (other) =>
      assert.notEqual(other.hash("hunter2"), first.hash("hunter2")),
    );
  });

  check("impossible keys are refused", async (first) => {
    await assert.rejects(first.read(""), { code: "invalid" });
    await assert.rejects(first.read("x".repeat(keyLengthMax + 1)), { code: "invalid" });
  });
}

function fenceOf(component: string, job: string, n = 1, generation = 1): Fence {
  return { component, jobId: `job_${job.padEnd(24, "0")}` as JobId, epoch: { generation, n } };
}
