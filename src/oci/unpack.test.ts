/** Archives made by an enemy change nothing outside the target, and leave nothing inside. */
import assert from "node:assert/strict";
import { mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { pack } from "tar-stream";
import { isBadContent } from "./content-fault.ts";
import { withFolder } from "./registry.fixture.ts";
import { unpack } from "./unpack.ts";

type Item = {
  readonly name: string;
  readonly type?: "file" | "symlink" | "link" | "directory" | "character-device" | "fifo";
  readonly linkname?: string;
  readonly mode?: number;
  readonly content?: string;
};

const hostile: { readonly [sentence: string]: readonly Item[] } = {
  "a name that climbs": [{ name: "../outside" }],
  "a name that climbs later": [{ name: "a/b/../../../outside" }],
  "an absolute name": [{ name: "/outside" }],
  "a name with backslashes": [{ name: "..\\outside" }],
  "a directory that climbs": [{ name: "../outside/", type: "directory" }],
  "a link to an absolute path": [{ name: "l", type: "symlink", linkname: "/etc" }],
  "a link that climbs": [{ name: "l", type: "symlink", linkname: "../.." }],
  "a link to nowhere": [{ name: "l", type: "symlink", linkname: "nowhere" }],
  "a link that leads out through another": [
    { name: "a/b/f" },
    { name: "a/b/up", type: "symlink", linkname: "../.." },
    { name: "l", type: "symlink", linkname: "a/b/up/../victim" },
  ],
  "a file written through a link": [
    { name: "l", type: "symlink", linkname: ".." },
    { name: "l/outside" },
  ],
  "a file in place of a link": [{ name: "l", type: "symlink", linkname: "x" }, { name: "l" }],
  "a hard link": [{ name: "x" }, { name: "l", type: "link", linkname: "x" }],
  "a device": [{ name: "null", type: "character-device" }],
  "a pipe": [{ name: "pipe", type: "fifo" }],
  "a name twice": [{ name: "x" }, { name: "./x" }],
  "a file where a directory is": [{ name: "x/y" }, { name: "x" }],
};

for (const [sentence, items] of Object.entries(hostile)) {
  test(`${sentence} is refused`, () =>
    withFolder(async (folder) => {
      await mkdir(join(folder, "here"));
      await writeFile(join(folder, "victim"), "untouched");

      const error = await failure(
        unpack(stream(await tarOf(items)), join(folder, "here", "target")),
      );

      assert.equal(isBadContent(error), true, String(error));
      assert.deepEqual(await readdir(folder), ["here", "victim"]);
      assert.deepEqual(await readdir(join(folder, "here")), []);
      assert.equal(await readFile(join(folder, "victim"), "utf8"), "untouched");
    }));
}

test("nothing is written through a link that leads out, not even another link", () =>
  withFolder(async (folder) => {
    await mkdir(join(folder, "here"));
    const tar = await tarOf([
      { name: "a", type: "symlink", linkname: ".." },
      { name: "a/b", type: "symlink", linkname: "x" },
      { name: "x" },
    ]);

    const error = await failure(unpack(stream(tar), join(folder, "here", "target")));

    assert.equal(isBadContent(error), true, String(error));
    assert.deepEqual(await readdir(join(folder, "here")), []);
  }));

test("any names at all stay inside or are refused", () =>
  fc.assert(
    fc.asyncProperty(
      fc.array(
        fc.record({
          name: fc
            .array(fc.constantFrom("..", ".", "", "a", "b", "link"), { minLength: 1, maxLength: 5 })
            .map((parts) => parts.join("/") || "x"),
          type: fc.constantFrom("file", "directory", "symlink"),
          linkname: fc.constantFrom("..", "../..", "a", "b/..", "link", ".", "/tmp"),
        }),
        { minLength: 1, maxLength: 6 },
      ),
      (items) =>
        withFolder(async (folder) => {
          await mkdir(join(folder, "here"));
          const target = join(folder, "here", "target");

          await unpack(stream(await tarOf(items as Item[])), target).catch(() => undefined);

          assert.deepEqual(await readdir(folder), ["here"]);
          const left = await readdir(join(folder, "here"));
          assert.ok(left.length === 0 || (left.length === 1 && left[0] === "target"), String(left));
        }),
    ),
    { numRuns: 60 },
  ));

test("content beyond the limits is refused, also when it is packed small", () =>
  withFolder(async (folder) => {
    const bomb = await tarOf([{ name: "zeros", content: "\0".repeat(5_000_000) }]);
    const many = await tarOf(Array.from({ length: 50 }, (_, index) => ({ name: `f${index}` })));
    assert.ok(bomb.length < 50_000);

    const limits = { bytesMax: 1_000_000, entriesMax: 20 };
    await assert.rejects(unpack(stream(bomb), join(folder, "t"), limits), { code: "too_large" });
    await assert.rejects(unpack(stream(many), join(folder, "t"), limits), { code: "too_large" });

    assert.deepEqual(await readdir(folder), []);
  }));

test("bytes that are no gzipped tar, or only a part of one, are refused", () =>
  withFolder(async (folder) => {
    const whole = await tarOf([{ name: "x", content: "hello ".repeat(10_000) }]);
    const broken = [
      Buffer.from("not a gzip"),
      gzipSync(Buffer.alloc(2048, "not a tar")),
      whole.subarray(0, whole.length / 2),
    ];

    for (const bytes of broken) {
      const error = await failure(unpack(stream(bytes), join(folder, "t")));
      assert.equal(isBadContent(error), true, String(error));
    }
    assert.deepEqual(await readdir(folder), []);
  }));

test("the bits of an archive's modes that give rights are not taken over", () =>
  withFolder(async (folder) => {
    await unpack(stream(await tarOf([{ name: "x", mode: 0o4777 }])), join(folder, "t"));

    const { mode } = await import("node:fs/promises").then(({ stat }) =>
      stat(join(folder, "t", "x")),
    );
    assert.equal(mode & 0o7777, 0o755);
  }));

test("a target that holds something is left alone", () =>
  withFolder(async (folder) => {
    await mkdir(join(folder, "t"));
    await writeFile(join(folder, "t", "mine"), "mine");
    await symlink("t", join(folder, "l"));

    const tar = await tarOf([{ name: "x" }]);
    await assert.rejects(unpack(stream(tar), join(folder, "t")), { code: "conflict" });

    assert.deepEqual(await readdir(join(folder, "t")), ["mine"]);
    assert.deepEqual((await readdir(folder)).sort(), ["l", "t"]);
  }));

async function tarOf(items: readonly Item[]): Promise<Buffer> {
  const tar = pack();
  for (const { content = "", ...header } of items) {
    if ((header.type ?? "file") === "file") tar.entry(header, content);
    else tar.entry(header);
  }
  tar.finalize();
  const pieces: Uint8Array[] = [];
  for await (const piece of tar as AsyncIterable<unknown>) pieces.push(piece as Uint8Array);
  return gzipSync(Buffer.concat(pieces));
}

async function* stream(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

async function failure(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => assert.fail("it did not fail"),
    (error: unknown) => error,
  );
}
