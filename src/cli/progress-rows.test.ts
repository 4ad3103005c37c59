import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { sampleComponent, sampleInstall } from "./install-view-samples.ts";
import {
  advanceClock,
  describeChanges,
  describeRow,
  type ProgressRow,
  renderRows,
  rowsOfInstall,
} from "./progress-rows.ts";

const plain = { width: 80, height: 24, colours: false, tick: 0, nowMs: 5000 };

function row(changes: Partial<ProgressRow> = {}): ProgressRow {
  return { name: "web", state: "applying", mood: "busy", detail: null, fraction: null, ...changes };
}

test("an install has a row for its sandbox and one for each component", () => {
  const install = sampleInstall({
    state: "provisioning",
    components: [
      sampleComponent("web", { state: "waiting", reason: "waits for the sandbox" }),
      sampleComponent("dns", { state: "disabled", reason: "no terraform" }),
    ],
  });

  const rows = rowsOfInstall(install);

  assert.deepEqual(
    rows.map(({ name, mood }) => [name, mood]),
    [
      ["sandbox", "busy"],
      ["web", "waiting"],
      ["dns", "off"],
    ],
  );
});

test("progress becomes a fraction, never more than the whole", () => {
  const fractions = [
    { done: 1, total: 4 },
    { done: 9, total: 4 },
    { done: 1, total: null },
    { done: 0, total: 0 },
  ].map((progress) => {
    const components = [sampleComponent("web", { state: "syncing", progress })];
    return rowsOfInstall(sampleInstall({ components }))[1]?.fraction;
  });

  assert.deepEqual(fractions, [0.25, 1, null, null]);
});

test("no drawn line is wider than the terminal, and there are no more than it has rows", () => {
  const rows = fc.array(
    fc.record({
      name: fc.string({ maxLength: 30 }),
      state: fc.string({ maxLength: 12 }),
      mood: fc.constantFrom("waiting", "busy", "good", "bad", "off"),
      detail: fc.option(fc.string({ maxLength: 300 })),
      fraction: fc.option(fc.double({ min: 0, max: 1, noNaN: true })),
    }),
    { maxLength: 60 },
  );
  fc.assert(
    fc.property(rows, fc.integer({ min: 20, max: 120 }), (some, width) => {
      const lines = renderRows(some, new Map(), { ...plain, width, height: 20 });

      assert(lines.length <= 18);
      for (const line of lines) assert(line.length <= width && !line.includes("\n"), line);
    }),
  );
});

test("rows that do not fit are counted", () => {
  const rows = Array.from({ length: 30 }, (_, index) => row({ name: `c${index}` }));

  const lines = renderRows(rows, new Map(), { ...plain, height: 10 });

  assert.equal(lines.length, 8);
  assert.equal(lines.at(-1), "  … and 23 more");
});

test("the clock of a row runs while it is busy and stands when it has ended", () => {
  let clock = advanceClock(new Map(), [row({ mood: "waiting", state: "waiting" })], 0);
  assert.equal(clock.size, 0);
  clock = advanceClock(clock, [row()], 1000);
  clock = advanceClock(clock, [row({ state: "planning" })], 2000);
  clock = advanceClock(clock, [row({ mood: "good", state: "active" })], 3500);
  clock = advanceClock(clock, [row({ mood: "good", state: "active" })], 9000);

  assert.deepEqual(clock.get("web"), { beganMs: 1000, endedMs: 3500 });
  assert.match(
    renderRows([row({ mood: "good", state: "active" })], clock, plain)[0] ?? "",
    /^✔ web {2}active {2}2\.5 s$/,
  );
});

test("plain lines tell changes only, and what failed with its reason", () => {
  const before = new Map([["web", "applying"]]);

  assert.deepEqual(describeChanges(before, [row()], new Map(), 0), []);
  assert.deepEqual(
    describeChanges(
      before,
      [row({ state: "failed", mood: "bad", detail: "exit 1" })],
      new Map(),
      0,
    ),
    ["web  failed: exit 1"],
  );
});

test("what a component waits for is drawn, but is no news", () => {
  const waiting = row({ mood: "waiting", state: "waiting", detail: "waits for `db`" });

  assert.equal(describeRow(waiting), "waiting");
  assert.match(renderRows([waiting], new Map(), plain)[0] ?? "", /waits for `db`/);
});
