import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { logSize, readLogTail, turnOverLog } from "./log-file.ts";

test("a log is read from its end, but not from before this start, and turned over when large", async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "landfall-log-"));
  context.after(() => rm(folder, { recursive: true }));
  const path = join(folder, "server.log");
  await writeFile(path, "old\nnew 1\nnew 2\nnew 3\n");

  assert.deepEqual(await readLogTail(path, 4, 2), ["new 2", "new 3"]);
  assert.deepEqual(await readLogTail(path, 4, 10), ["new 1", "new 2", "new 3"]);
  assert.deepEqual(await readLogTail(path, 1000, 10), []);
  await turnOverLog(path);
  assert.equal(await logSize(path), 22);
  await writeFile(path, "x".repeat(6 * 1024 * 1024));
  await turnOverLog(path);

  assert.equal(await logSize(path), 0);
  assert.equal((await readFile(`${path}.1`)).length, 6 * 1024 * 1024);
});
