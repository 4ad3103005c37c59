/** The scanner finds what the parser reads, at the place where it stands. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parse, stringify } from "smol-toml";
import { findPlace, scanToml, type TomlPath } from "./toml-positions.ts";

const text = `# a = 1
name = "x" # b = 2
a.b . "c d" = { e = [1, { f = "}" }], g = 'h' }
long = """
not = "a key"
[nor_a_table] \\""" ""\\"
"""
raw = '''
[x]''' # c
list = [
  "one", # [two]
  [ "three" ],
]

[table."quoted.key"]
k = 2020-01-01T00:00:00Z
[[items]]
id = 1
[[items]]
id = 2
[items.sub]
deep = true
[[items.more]]
last = "x"
[[items.more]]
last = "y"
`;

function lineOf(path: TomlPath): number {
  const place = findPlace(scanToml(text), path);
  assert(place, JSON.stringify(path));
  return text.slice(0, place.key).split("\n").length;
}

test("keys are found behind comments, strings, dots, inline tables and arrays of tables", () => {
  parse(text);

  assert.equal(lineOf(["name"]), 2);
  assert.equal(lineOf(["a", "b", "c d", "e", 1, "f"]), 3);
  assert.equal(lineOf(["a", "b", "c d", "g"]), 3);
  assert.equal(lineOf(["long"]), 4);
  assert.equal(lineOf(["raw"]), 8);
  assert.equal(lineOf(["list", 1, 0]), 12);
  assert.equal(lineOf(["table", "quoted.key", "k"]), 16);
  assert.equal(lineOf(["items", 0, "id"]), 18);
  assert.equal(lineOf(["items", 1, "id"]), 20);
  assert.equal(lineOf(["items", 1, "sub", "deep"]), 22);
  assert.equal(lineOf(["items", 1, "more", 1, "last"]), 26);
});

test("what is missing is placed at what is around it", () => {
  assert.equal(lineOf(["items", 1, "nope"]), 19);
  assert.equal(lineOf(["table", "quoted.key", "nope", "deeper"]), 15);
  assert.equal(findPlace(scanToml(text), ["nope"]), null);
});

test("every scalar of any document is found, and its value stands at its place", () => {
  const key = fc.string({ minLength: 1, maxLength: 6, unit: fc.constantFrom(...'ab_-1. "[]={}#') });
  const { document } = fc.letrec((tie) => ({
    leaf: fc.oneof(fc.string(), fc.integer(), fc.boolean()),
    node: fc.oneof(
      { depthSize: "small" },
      tie("leaf"),
      fc.array(tie("leaf"), { maxLength: 3 }),
      fc.array(tie("document"), { maxLength: 3, minLength: 1 }),
      tie("document"),
    ),
    document: fc.dictionary(key, tie("node"), { maxKeys: 4 }),
  }));
  fc.assert(
    fc.property(document, (value) => {
      const written = stringify(value);
      const places = scanToml(written);
      for (const { path, leaf } of leavesOf(parse(written), [])) {
        const place = places.get(JSON.stringify(path));
        assert(place, `${JSON.stringify(path)} in\n${written}`);
        if (typeof leaf === "string") assert.match(written.charAt(place.value), /["']/);
        else assert(written.slice(place.value).startsWith(String(leaf)), written);
      }
    }),
    { numRuns: 500 },
  );
});

test("text that is not TOML, and a very long string, are walked to the end", () => {
  fc.assert(fc.property(fc.string(), (any) => void scanToml(any)));
  scanToml(`a = """${"x ".repeat(500_000)}"""\nb = 1`);
});

function* leavesOf(value: unknown, path: TomlPath): Generator<{ path: TomlPath; leaf: unknown }> {
  if (Array.isArray(value)) {
    for (const [at, item] of value.entries()) yield* leavesOf(item, [...path, at]);
  } else if (value !== null && typeof value === "object") {
    for (const [key, item] of Object.entries(value)) yield* leavesOf(item, [...path, key]);
  } else yield { path, leaf: value };
}
