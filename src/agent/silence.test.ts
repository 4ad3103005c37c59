/** Silence is counted only while somebody was listening. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isTooLong, look, type Silence } from "./silence.ts";

const limitMs = 60_000;

/** Looks every 200 ms from `fromMs` on, for so long, at a sign that does not change. */
function listen(before: Silence | null, fromMs: number, forMs: number, sign = "a"): Silence {
  let silence = look(before, sign, fromMs);
  for (let nowMs = fromMs; nowMs <= fromMs + forMs; nowMs += 200) {
    silence = look(silence, sign, nowMs);
  }
  return silence;
}

test("an executor is silent once nothing has changed for the whole limit, and not before", () => {
  assert(!isTooLong(listen(null, 0, limitMs - 200), limitMs));
  assert(isTooLong(listen(null, 0, limitMs), limitMs));
});

test("without a limit nothing is too long", () => {
  assert(!isTooLong(listen(null, 0, 10 * limitMs), null));
});

test("a sign of life begins the count anew", () => {
  const first = listen(null, 0, limitMs - 200);

  const second = listen(first, limitMs, limitMs - 200, "b");

  assert(!isTooLong(second, limitMs));
});

test("time in which the agent itself was stopped does not count", () => {
  const before = listen(null, 0, limitMs / 2);

  const woken = look(before, "a", 24 * 60 * limitMs);
  const after = listen(woken, 24 * 60 * limitMs, limitMs - 200);

  assert(!isTooLong(woken, limitMs));
  assert(!isTooLong(after, limitMs));
  assert(isTooLong(listen(after, after.lookedAtMs, 200), limitMs));
});

test("an executor that changes its sign within the limit is never silent, however the agent looks", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 30_000 }), { maxLength: 200 }), (gaps) => {
      let nowMs = 0;
      let silence: Silence | null = null;
      for (const gap of gaps) {
        nowMs += gap;
        silence = look(silence, String(Math.floor(nowMs / 5000)), nowMs);
        assert(!isTooLong(silence, limitMs));
      }
    }),
  );
});
