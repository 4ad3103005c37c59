/** Programs are bundled when a source has changed, and only then. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { bundlePrograms } from "./bundle.ts";

const root = join(import.meta.dirname, "..");

test("two bundlers at once give whole programs, and a third has nothing to do", async () => {
  const target = await mkdtemp(join(tmpdir(), "landfall-bundle-"));
  try {
    await Promise.all([bundlePrograms(root, target), bundlePrograms(root, target)]);
    const { executor, plugin } = await bundlePrograms(root, target);
    const before = await stat(executor);

    await bundlePrograms(root, target);

    assert.equal((await stat(executor)).ino, before.ino);
    assert.deepEqual(
      (await readdir(target)).filter((name) => name.startsWith(".new-")),
      [],
    );
    const request = JSON.stringify({});
    const said = execFileSync(process.execPath, [plugin, "noop"], {
      input: request,
      encoding: "utf8",
    });
    assert.equal(JSON.parse(said).type, "outcome");
  } finally {
    await rm(target, { recursive: true, force: true });
  }
});

test("a source that is not what it was is bundled again", async () => {
  const target = await mkdtemp(join(tmpdir(), "landfall-bundle-"));
  try {
    const { executor } = await bundlePrograms(root, target);
    const before = await stat(executor);
    const record = join(target, ".hash");
    const { hash } = JSON.parse(await readFile(record, "utf8"));
    await writeFile(record, (await readFile(record, "utf8")).replace(hash, "another"));

    await bundlePrograms(root, target);

    assert.notEqual((await stat(executor)).ino, before.ino);
  } finally {
    await rm(target, { recursive: true, force: true });
  }
});
