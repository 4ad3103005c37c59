import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { readLines, readServerSentEvents } from "./line-stream.ts";

async function* inPieces(text: string, size: number): AsyncGenerator<Uint8Array> {
  const bytes = new TextEncoder().encode(text);
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

test("lines are the same however the bytes arrive", async () => {
  const line = fc.string({ unit: "grapheme" }).map((text) => text.replaceAll(/[\r\n]/g, ""));
  await fc.assert(
    fc.asyncProperty(
      fc.array(line, { minLength: 1 }),
      fc.integer({ min: 1, max: 7 }),
      async (lines, size) => {
        const got = await Array.fromAsync(readLines(inPieces(`${lines.join("\n")}\n`, size)));

        assert.deepEqual(got, lines);
      },
    ),
    { numRuns: 50 },
  );
});

test("a last line without an end counts, and a carriage return does not", async () => {
  assert.deepEqual(await Array.fromAsync(readLines(inPieces("a\r\nb", 1))), ["a", "b"]);
});

test("an event's data lines are joined, and comments give nothing", async () => {
  const text = ": awake\n\nevent: live\ndata: {\ndata: }\n\ndata:x\n\n";

  assert.deepEqual(await Array.fromAsync(readServerSentEvents(inPieces(text, 3))), ["{\n}", "x"]);
});
