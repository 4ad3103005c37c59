/**
 * A scenario of its own process, since it needs a mount namespace: `full-disk.ts DATA SIDE`. DATA/disk is
 * a small file system that holds the server's (or the install's) files; it fills up in the middle of
 * an apply, and is freed again.
 */
import assert from "node:assert/strict";
import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { until } from "../system.ts";
import { openScene, type Part } from "./scene.ts";

const pieceBytes = 1024 * 1024;
const settleMs = 90_000;

const [data = "", side = ""] = process.argv.slice(2);
const cleaning: (() => Promise<unknown>)[] = [];
try {
  await play();
  console.log("as promised");
} finally {
  for (const clean of cleaning) await clean();
}

async function play(): Promise<void> {
  const scene = await openScene({ after: (work) => void cleaning.push(work) }, { data });
  await scene.deploy(parts("first"));
  await scene.applying("long");

  const free = fillDisk();
  if (side === "server") {
    // PostgreSQL has room in the files that it has; take that too.
    await scene.product.database.tryQuery(
      "create table filler as select repeat('x', 1000) from generate_series(1, 300000)",
    );
    const hasEnded = async () => (await scene.applies("long")).some(({ endMs }) => endMs !== null);
    await until(hasEnded, "the job ends at the agent while the server's disk is full");
    const rows = await scene.product.database.tryQuery<{ state: string }>(
      "select state from jobs where component = 'long' and operation = 'apply'",
    );
    assert.notEqual(rows?.[0]?.state, "succeeded", "the server cannot have its outcome yet");
  } else {
    await new Promise((resolve) => setTimeout(resolve, 5000));
  }
  free();
  await scene.settled(settleMs);

  const job = await scene.applyJob("long");
  const story = await scene.story(job.id);
  const ends = story.filter((kind) => /succeeded|failed|cancelled/.test(kind));
  assert.equal(ends.length, 1, story.join(" "));
  if (side === "server") {
    assert.deepEqual([job.state, job.epoch], ["succeeded", "1.1"]);
    assert.equal((await scene.applies("long")).length, 1);
  } else {
    // No room for state, outputs or outcome: it may have used up its attempts, and says why.
    const message = job.outcome?.message ?? "";
    assert(job.state === "succeeded" || /disk|ENOSPC|vanished|exited/.test(message), message);
    await scene.deploy(parts("again"));
    await scene.settled(settleMs);
    assert.equal((await scene.applyJob("after")).state, "succeeded");
  }
  assert.deepEqual(await scene.remains(), []);
}

function parts(stamp: string): Part[] {
  return [
    { name: "long", config: { sleep_ms: 3000, log_lines: 200, outputs: { stamp } } },
    { name: "after", dependencies: ["long"], config: { files: { stamp } } },
  ];
}

/** Takes the last byte; gives what frees it all again. */
function fillDisk(): () => void {
  const path = join(data, "disk", "filler");
  const file = openSync(path, "w");
  for (let size = pieceBytes; size >= 1; size = Math.floor(size / 2)) {
    const piece = Buffer.alloc(size);
    try {
      while (writeSync(file, piece) > 0) {}
    } catch {
      // Full for pieces of this size.
    }
  }
  closeSync(file);
  return () => rmSync(path);
}
