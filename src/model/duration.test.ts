import assert from "node:assert/strict";
import { test } from "node:test";
import { parseDuration } from "./duration.ts";

test("durations are read as numbers with units, repeated and with decimals", () => {
  assert.equal(parseDuration("30s"), 30_000);
  assert.equal(parseDuration("0m30s"), 30_000);
  assert.equal(parseDuration("2m30s"), 150_000);
  assert.equal(parseDuration("1.5h"), 5_400_000);
  assert.equal(parseDuration("250ms"), 250);
});

test("anything else is no duration", () => {
  for (const text of ["", "5", "1d", "s", "-1s", "1 s", "1s "]) {
    assert.equal(parseDuration(text), null, text);
  }
});
