/** Replacing files: whole, private, and nothing left behind. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { removeUnfinished, replaceFile } from "./replace-file.ts";

let folder = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "landfall-files-"));
});
after(() => rm(folder, { recursive: true }));

test("a file is made and replaced, readable by its owner alone, and nothing else is left", async () => {
  const path = join(folder, "a.json");
  await replaceFile(path, "first");
  await replaceFile(path, "second");

  assert.equal(await readFile(path, "utf8"), "second");
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(folder), ["a.json"]);
});

test("a reader never sees a part of a file, however many write it at once", async () => {
  const path = join(folder, "a.json");
  const texts = Array.from({ length: 20 }, (_, index) => String(index).repeat(10_000));
  const writing = Promise.all(texts.map((text) => replaceFile(path, text)));
  const seen: string[] = [];
  for (let read = 0; read < 50; read++) seen.push(await readFile(path, "utf8"));
  await writing;

  for (const text of seen) assert(text === "second" || texts.includes(text));
});

test("what a link points to is not written", async () => {
  const [target, link] = [join(folder, "target"), join(folder, "link")];
  await writeFile(target, "old");
  await symlink(target, link);

  await replaceFile(link, "new");

  assert.equal(await readFile(target, "utf8"), "old");
  assert.equal(await readFile(link, "utf8"), "new");
});

test("a folder that is not there is a failure, and leaves nothing", async () => {
  await assert.rejects(replaceFile(join(folder, "absent", "a"), "x"), { code: "ENOENT" });
});

test("what a killed process left beside its files is removed, and nothing of others", async () => {
  const mine = await mkdtemp(join(folder, "mine-"));
  const id = "7a4e7b1d-8591-439c-929f-2165dee1fd3a";
  const others = [`.other.json.${id}`, ".key.json.new", "key.json"];
  for (const name of [`.key.json.${id}`, ...others]) await writeFile(join(mine, name), "");

  await removeUnfinished([join(mine, "key.json"), join(mine, "absent", "file")]);

  assert.deepEqual((await readdir(mine)).sort(), others.sort());
});
