/** Blobs are there whole or not at all, and nothing of what was cut short stays. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { createFolderBlobStore } from "./blob-store.ts";

test("what a server was writing when it was killed is gone when it starts again, what another one writes is not", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "landfall-blobs-"));
  t.after(() => rm(directory, { recursive: true, force: true }));
  await leaveUnfinished(directory, "killed");
  await leaveUnfinished(directory, "writing");

  const store = createFolderBlobStore(directory, "killed");
  await store.write("logs/whole", Buffer.from("whole"));

  const files = await readdir(directory, { recursive: true, withFileTypes: true });
  const names = files.filter((entry) => entry.isFile()).map((entry) => entry.parentPath);
  assert.deepEqual(names.sort(), [
    join(directory, ".unfinished", "writing"),
    join(directory, "logs"),
  ]);
  assert.equal(String(await store.read("logs/whole")), "whole");
});

/** A write that never comes to its end, as if the process were gone. */
async function leaveUnfinished(directory: string, owner: string): Promise<void> {
  const { promise: begun, resolve } = Promise.withResolvers<void>();
  async function* endless() {
    yield Buffer.from("half");
    resolve();
    await new Promise(() => {});
  }
  const expected = { digest: "sha256:0" as const, sizeBytesMax: 100 };
  void createFolderBlobStore(directory, owner).writeStream("logs/half", endless(), expected);
  await begun;
}
