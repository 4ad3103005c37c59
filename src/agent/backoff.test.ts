/** How agents come back: spread out, and when the server asked for it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { reconnectMs } from "./backoff.ts";
import { heartbeatMs } from "./connection.ts";
import { restMs, supersessionRestMs } from "./supersession.ts";
import { explainUpgradeAnswer, readRetryAfter } from "./upgrade-answer.ts";

const closed = { code: "closed", retryAfterMs: null } as const;
const longest = (last: Parameters<typeof reconnectMs>[0], attempt: number) =>
  reconnectMs(last, attempt, () => 1);

test("a single drop is followed by a wait of at most 250 ms, then the window doubles up to 15 s", () => {
  const windows = [0, 1, 2, 3, 10, 1000].map((attempt) => longest(closed, attempt));

  assert.deepEqual(windows, [250, 500, 1000, 2000, 15_000, 15_000]);
  assert.equal(
    reconnectMs(closed, 5, () => 0),
    0,
  );
});

test("thousands that a server sends away at once come back spread over seconds", () => {
  const last = { code: "retry", retryAfterMs: null } as const;
  let seed = 0;
  const waits = Array.from({ length: 2000 }, () =>
    reconnectMs(last, 0, () => (seed = (seed + 0.618_033_988_75) % 1)),
  );

  assert(Math.max(...waits) > 1800 && Math.min(...waits) < 200);
  for (let from = 0; from < 2000; from += 200) {
    const share = waits.filter((wait) => wait >= from && wait < from + 200).length;
    assert(share > 100 && share < 300, `${share} of 2000 between ${from} and ${from + 200} ms`);
  }
});

test("`Retry-After` is honoured between none and twice of it, within reason", () => {
  assert.equal(longest({ code: "closed", retryAfterMs: 10_000 }, 0), 20_000);
  assert.equal(
    reconnectMs({ code: "closed", retryAfterMs: 10_000 }, 0, () => 0.25),
    5000,
  );
  assert.equal(longest({ code: "closed", retryAfterMs: 0 }, 3), 2000, "zero is no leave to storm");
  assert.equal(longest({ code: "closed", retryAfterMs: 1e9 }, 0), 600_000);
  assert.equal(readRetryAfter(" 7 "), 7000);
  assert.equal(readRetryAfter("Wed, 21 Oct 2015 07:28:00 GMT"), null);
  assert.equal(readRetryAfter(undefined), null);
});

test("the heartbeat comes at least three times in each lease, and in the minute that a proxy allows", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 100_000 }), (leaseSeconds) => {
      assert(heartbeatMs(leaseSeconds) <= (leaseSeconds * 1000) / 3);
      assert(heartbeatMs(leaseSeconds) <= 60_000 / 3);
    }),
  );
});

test("an agent that was superseded rests until a minute after it, at least, and never for ever", () => {
  fc.assert(
    fc.property(
      fc.nat(200_000),
      fc.double({ min: 0, max: 0.999, noNaN: true }),
      (sinceMs, random) => {
        const rest = restMs(1000, 1000 + sinceMs, () => random);
        assert(sinceMs + rest >= supersessionRestMs);
        assert(rest <= 2 * supersessionRestMs);
      },
    ),
  );
});

test("an answer to the upgrade says what stands in the way", () => {
  for (const status of [200, 400, 404, 426, null]) {
    assert.match(explainUpgradeAnswer("wss://x", status), /removes `Upgrade`/);
  }
  assert.match(explainUpgradeAnswer("wss://x", 503), /HTTP 503.*no more connections just now/);
  assert.match(explainUpgradeAnswer("wss://x", 502), /cannot reach it/);
  assert.match(explainUpgradeAnswer("wss://x", 301), /`serverUrl`/);
});
