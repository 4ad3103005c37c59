import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { cut, fitWidths, formatTable } from "./table.ts";

test("a table fits the width, whatever is in it", () => {
  fc.assert(
    fc.property(
      fc.array(fc.array(fc.string(), { minLength: 4, maxLength: 4 }), { maxLength: 8 }),
      fc.integer({ min: 40, max: 200 }),
      (rows, width) => {
        const lines = formatTable(["one", "two", "three", "four"], rows, { width, colours: false });

        assert.equal(lines.length, rows.length + 1);
        for (const line of lines) assert(line.length <= width, `${line.length} > ${width}`);
      },
    ),
  );
});

test("where there is no terminal nothing is cut", () => {
  const long = "x".repeat(500);

  const lines = formatTable(["name"], [[long]], {
    width: Number.POSITIVE_INFINITY,
    colours: false,
  });

  assert.deepEqual(lines, ["NAME", long]);
});

test("a cell with a line break stays one line", () => {
  const lines = formatTable(["a", "b"], [["first\n  second", "x"]], { width: 80, colours: false });

  assert.deepEqual(lines, ["A             B", "first second  x"]);
});

test("colours are in the text only where they are wanted", () => {
  const rows = [[{ text: "ok", tone: "good" as const }]];

  assert(formatTable(["s"], rows, { width: 80, colours: true })[1]?.includes("\u001b[32mok"));
  assert.equal(formatTable(["s"], rows, { width: 80, colours: false })[1], "ok");
});

test("the widest column gives first, and none below its least", () => {
  assert.deepEqual(fitWidths([10, 40], 32), [10, 20]);
  assert.deepEqual(fitWidths([6, 6], 4), [6, 6]);
});

test("a cut text says that it was cut", () => {
  assert.equal(cut("abcdef", 4), "abc…");
  assert.equal(cut("abcd", 4), "abcd");
});
