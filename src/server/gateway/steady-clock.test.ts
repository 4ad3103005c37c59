/** What an agent is told of the time goes on evenly, whatever happens to the machine's clock. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createSteadyClock } from "./steady-clock.ts";

test("the time that a connection tells goes on evenly when the server's clock jumps by hours", () => {
  let wallMs = Date.parse("2030-01-01T12:00:00Z");
  let monotonicMs = 500;
  const clock = createSteadyClock(
    () => new Date(wallMs),
    () => monotonicMs,
  );

  wallMs -= 7 * 3_600_000;
  monotonicMs += 2000;

  assert.equal(clock().toISOString(), "2030-01-01T12:00:02.000Z");
});
