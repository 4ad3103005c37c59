import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { JobId } from "./ids.ts";
import { type HeldTry, judgeJournal, type TryKey } from "./journal-rules.ts";

function tryOf(jobId: string, n = 1, generation = 1): TryKey {
  return { jobId: jobId as JobId, epoch: { generation, n } };
}

test("a job that both sides know goes on, and one that neither agent of the install knows is lost", () => {
  const held = [
    { key: tryOf("job_kept"), agentRevoked: false },
    { key: tryOf("job_gone"), agentRevoked: false },
  ];

  const judged = judgeJournal(held, [tryOf("job_kept")]);

  assert.deepEqual(judged, {
    keep: [tryOf("job_kept")],
    adopt: [],
    lost: [tryOf("job_gone")],
    forget: [],
  });
});

test("what a replaced agent held is adopted when the new one found it, and lost otherwise", () => {
  const held = [
    { key: tryOf("job_found"), agentRevoked: true },
    { key: tryOf("job_gone"), agentRevoked: true },
  ];

  const judged = judgeJournal(held, [tryOf("job_found")]);

  assert.deepEqual(judged, {
    keep: [],
    adopt: [tryOf("job_found")],
    lost: [tryOf("job_gone")],
    forget: [],
  });
});

test("another epoch of a held job is no trace of it, and is forgotten", () => {
  const held = [{ key: tryOf("job_a", 2), agentRevoked: false }];

  const judged = judgeJournal(held, [tryOf("job_a", 1), tryOf("job_a", 2, 2)]);

  assert.deepEqual(judged.keep, []);
  assert.deepEqual(judged.lost, [tryOf("job_a", 2)]);
  assert.deepEqual(judged.forget, [tryOf("job_a", 1), tryOf("job_a", 2, 2)]);
});

test("every held job and every entry of a journal is judged exactly once", () => {
  const key = fc
    .record({
      id: fc.constantFrom("job_a", "job_b", "job_c"),
      n: fc.integer({ min: 1, max: 3 }),
      generation: fc.integer({ min: 1, max: 2 }),
    })
    .map(({ id, n, generation }) => tryOf(id, n, generation));
  const held: fc.Arbitrary<HeldTry[]> = fc.uniqueArray(
    fc.record({ key, agentRevoked: fc.boolean() }),
    { selector: (each) => each.key.jobId },
  );
  const journal = fc.uniqueArray(key, { selector: (each) => JSON.stringify(each) });

  fc.assert(
    fc.property(held, journal, (ours, theirs) => {
      const { keep, adopt, lost, forget } = judgeJournal(ours, theirs);
      assert.deepEqual(sorted([...keep, ...adopt, ...lost]), sorted(ours.map((each) => each.key)));
      assert.deepEqual(sorted([...keep, ...adopt, ...forget]), sorted(theirs));
    }),
  );
});

function sorted(keys: readonly TryKey[]): string[] {
  return keys.map((each) => JSON.stringify(each)).sort();
}
