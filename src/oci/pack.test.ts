/** Packing depends on names and contents alone; unpacking gives them back. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  chmod,
  mkdir,
  readdir,
  readFile,
  readlink,
  stat,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { digestOf } from "../model/json.ts";
import { collect } from "./content-stream.ts";
import { packDirectory, packDirectoryToFile } from "./pack.ts";
import { withFolder } from "./registry.fixture.ts";
import { unpack } from "./unpack.ts";

const sizeMax = 50_000_000;

interface File {
  readonly path: string;
  readonly content: Uint8Array;
  readonly executable: boolean;
}

const part = fc.stringMatching(/^[a-zé][a-zA-Z0-9 ._ü-]{0,30}$/);
const files = fc.uniqueArray(
  fc.record({
    path: fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => `${parts.join("/")}.f`),
    content: fc.uint8Array({ maxLength: 2000 }),
    executable: fc.boolean(),
  }),
  { selector: (file) => file.path.toLowerCase(), maxLength: 8 },
);

test("packing is independent of creation order, times and umask; unpacking gives the files back", () =>
  fc.assert(
    fc.asyncProperty(files, fc.infiniteStream(fc.nat(2_000_000_000)), (given, times) =>
      withFolder(async (folder) => {
        await writeFiles(join(folder, "one"), given, 0o022);
        await writeFiles(join(folder, "two"), [...given].reverse(), 0o077);
        for (const { path } of given) {
          const time = times.next().value ?? 0;
          await utimes(join(folder, "two", path), time, time);
        }

        const one = await collect(packDirectory(join(folder, "one")), sizeMax);
        const two = await collect(packDirectory(join(folder, "two")), sizeMax);

        assert.equal(one.equals(two), true);
        await writeFile(join(folder, "packed"), one);
        await unpack(join(folder, "packed"), join(folder, "three"));
        for (const { path, content, executable } of given) {
          assert.deepEqual(new Uint8Array(await readFile(join(folder, "three", path))), content);
          const { mode } = await stat(join(folder, "three", path));
          assert.equal(mode & 0o777, executable ? 0o755 : 0o644);
        }
      }),
    ),
    { numRuns: 25 },
  ));

test("the tar has these bytes on every machine, and the gzip header tells nothing about it", () =>
  withFolder(async (folder) => {
    await writeFile(join(folder, "hello.txt"), "hello\n");
    await mkdir(join(folder, "empty"));

    const packed = await collect(packDirectory(folder), sizeMax);

    assert.deepEqual([...packed.subarray(0, 10)], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
    const tar = execFileSync("gunzip", ["-c"], { input: packed });
    assert.equal(
      digestOf(tar),
      "sha256:a11764b651d5751dbeb1ac48cd7c69f6b56c06a0dd60d14d43f2d8799bc887b6",
    );
  }));

test("large files, long names and links inside survive, and tar reads the result", () =>
  withFolder(async (folder) => {
    const source = join(folder, "source");
    const long = `${"deep/".repeat(40)}${"n".repeat(200)}`;
    await mkdir(dirname(join(source, long)), { recursive: true });
    await writeFile(join(source, long), Buffer.alloc(3_000_000, 7));
    await symlink(`deep/../${long}`, join(source, "link"));
    const file = join(folder, "packed.tar.gz");

    const { digest, sizeBytes } = await packDirectoryToFile(source, file);
    await unpack(file, join(folder, "target"));

    assert.equal(digest, digestOf(await readFile(file)));
    assert.equal(sizeBytes, (await stat(file)).size);
    assert.equal((await readFile(join(folder, "target", "link"))).length, 3_000_000);
    assert.equal(await readlink(join(folder, "target", "link")), `deep/../${long}`);
    const listed = execFileSync("tar", ["-tzf", file]).toString();
    assert.ok(listed.includes(long));
  }));

test("links that lead outside, sockets and missing directories are refused", () =>
  withFolder(async (folder) => {
    const pack = (name: string) => collect(packDirectory(join(folder, name)), sizeMax);
    for (const [index, target] of ["/etc/passwd", "../..", "../sibling", "nowhere"].entries()) {
      await mkdir(join(folder, `link${index}`));
      await symlink(target, join(folder, `link${index}`, "link"));
      await assert.rejects(pack(`link${index}`), { code: "invalid", message: /`link` leads to/ });
    }
    await mkdir(join(folder, "through", "inner"), { recursive: true });
    await symlink("..", join(folder, "through", "inner", "up"));
    await symlink("inner/up/../link0", join(folder, "through", "sly"));
    await assert.rejects(pack("through"), { code: "invalid", message: /`sly` leads to/ });

    await mkdir(join(folder, "socket"));
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(join(folder, "socket", "s"), resolve));
    await assert.rejects(pack("socket"), { code: "invalid", message: /device, socket or pipe/ });
    await new Promise((resolve) => server.close(resolve));

    await assert.rejects(pack("absent"), { code: "ENOENT" });
  }));

test("a reader who stops early leaves nothing running", () =>
  withFolder(async (folder) => {
    await writeFile(join(folder, "large"), Buffer.alloc(5_000_000, 1));

    for await (const _piece of packDirectory(folder)) break;

    assert.deepEqual(await readdir(folder), ["large"]);
  }));

async function writeFiles(root: string, given: readonly File[], umask: number): Promise<void> {
  await mkdir(root);
  for (const { path, content, executable } of given) {
    await mkdir(dirname(join(root, path)), { recursive: true, mode: 0o777 & ~umask });
    await writeFile(join(root, path), content);
    await chmod(join(root, path), (executable ? 0o777 : 0o666) & ~umask);
  }
}
