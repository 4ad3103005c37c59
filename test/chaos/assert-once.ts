/** The claim of every scenario: whatever happened, the component was applied once, and its end counted once. */
import assert from "node:assert/strict";
import { type JobEvent, lastSeqOf } from "../../src/protocol/events.ts";
import type { Scene } from "./scene.ts";

/** One executor in one epoch, one outcome, every line. */
export async function assertOnce(scene: Scene, component: string): Promise<string[]> {
  const [job, runs] = [await scene.applyJob(component), await scene.applies(component)];
  assert.equal(job.state, "succeeded");
  assert.deepEqual(
    runs.filter((run) => run.job === job.id).map(({ epoch, endMs }) => [epoch, endMs !== null]),
    [["1.1", true]],
  );
  const story = await scene.story(job.id);
  const ends = story.filter((kind) => /succeeded|failed|cancelled/.test(kind));
  assert.deepEqual(ends, ["succeeded"], story.join(" "));
  await assertLines(scene, job.id);
  return story;
}

async function assertLines(scene: Scene, jobId: string): Promise<void> {
  const lines = (await scene.product.api.text(`/api/jobs/${jobId}/logs`)).trim().split("\n");
  const events = lines.map((line) => JSON.parse(line) as JobEvent);
  for (const [index, event] of events.entries()) {
    const before = events[index - 1];
    assert.equal(event.seq, before ? lastSeqOf(before) + 1 : 1, `the lines of ${jobId}`);
  }
  assert.equal(events.at(-1)?.type, "outcome");
}
