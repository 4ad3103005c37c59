/** Notes between servers: nothing that was told is left out, and none is longer than PostgreSQL takes. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { noteBytesMax, readNote, topicsMax, writeNotes } from "./wake-notes.ts";

const payloadBytesMax = 7999;

test("every topic and all progress is in one of the notes, none is too long, and few are needed", () => {
  const topic = fc.string({ unit: "grapheme", maxLength: 60 }).map((name) => `jobs:${name}`);
  const progress = fc.tuple(
    fc.uuid(),
    fc.option(
      fc.record(
        {
          label: fc.string({ unit: "grapheme", maxLength: 30 }),
          done: fc.nat(),
          total: fc.option(fc.nat()),
        },
        { noNullPrototype: true },
      ),
    ),
  );
  fc.assert(
    fc.property(
      fc.uniqueArray(topic, { maxLength: 600 }),
      fc.uniqueArray(progress, { maxLength: 100, selector: ([id]) => id }),
      (topics, told) => {
        const notes = writeNotes(topics, told);
        const read = notes.map(readNote);

        assert.deepEqual(
          read.flatMap((note) => note.topics),
          topics,
        );
        assert.deepEqual(
          read.flatMap((note) => note.progress),
          told,
        );
        for (const note of notes) assert(Buffer.byteLength(note) <= payloadBytesMax);
        const bytes = notes.reduce((sum, note) => sum + Buffer.byteLength(note), 0);
        assert(notes.length <= 1 + (2 * bytes) / noteBytesMax);
      },
    ),
    { numRuns: 50 },
  );
});

test("more topics than there is room for become one that wakes everything", () => {
  const topics = Array.from({ length: topicsMax + 1 }, (_, index) => `log:job_${index}`);

  assert.deepEqual(writeNotes(topics, []).map(readNote), [{ topics: ["*"], progress: [] }]);
});

test("a note that cannot be read wakes everything", () => {
  assert.deepEqual(readNote("jobs:build"), { topics: ["*"], progress: [] });
});
