import assert from "node:assert/strict";
import { test } from "node:test";
import { formatAge, formatBytes, formatDuration } from "./duration.ts";

test("durations are read as people say them", () => {
  const cases: [number, string][] = [
    [0, "0.0 s"],
    [1234, "1.2 s"],
    [9960, "10 s"],
    [59_400, "59 s"],
    [185_000, "3 min 5 s"],
    [7_800_000, "2 h 10 min"],
    [99 * 3_600_000, "4 d 3 h"],
    [-5, "0.0 s"],
  ];
  for (const [ms, text] of cases) assert.equal(formatDuration(ms), text);
});

test("an age counts from now, and nothing was never", () => {
  const now = new Date("2030-01-01T00:01:00Z");
  assert.equal(formatAge("2030-01-01T00:00:00Z", now), "1 min 0 s ago");
  assert.equal(formatAge(null, now), "never");
});

test("sizes carry their unit", () => {
  assert.equal(formatBytes(512), "512 B");
  assert.equal(formatBytes(1536), "1.5 KiB");
  assert.equal(formatBytes(34 * 1024 * 1024), "34 MiB");
});
