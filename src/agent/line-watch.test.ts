/** When a silent line is pinged and given up, tick by tick. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { watchLine } from "./line-watch.ts";

test("a silent line is pinged after five seconds and given up after ten, once", (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  const seen: string[] = [];
  watchLine({ ping: () => seen.push("ping"), giveUp: () => seen.push("give up") });

  context.mock.timers.tick(4999);
  assert.deepEqual(seen, []);
  context.mock.timers.tick(1);
  assert.deepEqual(seen, ["ping"]);
  context.mock.timers.tick(4999);
  assert.deepEqual(seen, ["ping"]);
  context.mock.timers.tick(60_000);
  assert.deepEqual(seen, ["ping", "give up"]);
});

test("a line on which anything is heard is never given up", (context) => {
  context.mock.timers.enable({ apis: ["setInterval"] });
  let pings = 0;
  const watch = watchLine({
    ping() {
      pings++;
      watch.heard();
    },
    giveUp: () => assert.fail("given up"),
  });

  context.mock.timers.tick(3_600_000);
  watch.stop();

  assert.equal(pings, 720);
});
