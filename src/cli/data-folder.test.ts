/** Real folders and file systems: read-only and full ones are mounted in a namespace of their own. */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, before, type TestContext, test } from "node:test";
import { ownProcess } from "../protocol/process-identity.ts";
import { openDataFolder } from "./data-folder.ts";

let base = "";
before(async () => {
  base = await mkdtemp(join(tmpdir(), "landfall-test-"));
});
after(() => rm(base, { recursive: true, force: true }));

const moduleUrl = new URL("./data-folder.ts", import.meta.url).href;
const nodeArgs = ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e"];

test("a new folder has its parts and is closed to others, and a second opening finds it", async () => {
  const path = join(base, "parent", "new");
  const folder = await openDataFolder(path);
  const { mode } = await stat(path);
  const names = [folder.postgres, folder.server, folder.registry, folder.buildAgent]
    .concat(folder.installs, folder.logs, folder.run)
    .map((part) => basename(part));

  await folder.close();
  await folder.close();
  const again = await openDataFolder(path);
  await again.close();

  assert.equal(mode & 0o777, 0o700);
  assert.deepEqual(
    names.filter((name) => !existsSync(join(path, name))),
    [],
  );
  assert.deepEqual(JSON.parse(await readFile(join(path, "version.json"), "utf8")), { format: 1 });
  assert.equal(existsSync(join(path, "lock.json")), false);
});

test("a folder that others could enter is closed", async () => {
  const path = join(base, "open");
  await mkdir(path, { mode: 0o755 });

  await (await openDataFolder(path)).close();

  assert.equal((await stat(path)).mode & 0o777, 0o700);
});

test("a folder with a path of 200 characters works", async () => {
  const path = join(base, "x".repeat(100), "y".repeat(100)).slice(0, 200);

  const folder = await openDataFolder(path);
  await folder.close();

  assert.equal(folder.path.length, 200);
});

test("a folder of a newer format is refused and left as it is", async () => {
  const path = join(base, "newer");
  await mkdir(path);
  await writeFile(join(path, "version.json"), JSON.stringify({ format: 2 }));

  await assert.rejects(openDataFolder(path), {
    code: "conflict",
    message: /format 1, got 2: .*newer version of Landfall\. Use that version, or .*--data/,
  });

  assert.deepEqual(readdirSync(path), ["version.json"]);
});

test("a folder that holds something else is refused and left as it is", async () => {
  const path = join(base, "home");
  await mkdir(path);
  await writeFile(join(path, "letter.txt"), "dear");

  await assert.rejects(openDataFolder(path), { code: "conflict", message: /holds `letter\.txt`/ });

  assert.deepEqual(readdirSync(path), ["letter.txt"]);
});

test("a folder in use by a live process is refused, and taken over once that was killed", async (t) => {
  const path = join(base, "used");
  const { child: holder, open } = await startOpener(t);
  assert.equal(await open(path), "opened");

  await assert.rejects(openDataFolder(path), {
    code: "conflict",
    message: new RegExp(`process ${holder.pid} uses it\\. Stop that process, or .*--data`),
  });
  holder.kill("SIGKILL");
  await once(holder, "exit");
  const folder = await openDataFolder(path);
  const lock = JSON.parse(await readFile(join(path, "lock.json"), "utf8"));
  await folder.close();

  assert.deepEqual(lock, ownProcess());
});

test("a lock whose pid now belongs to another process, or that was cut off, is taken over", async () => {
  const path = join(base, "reused");
  await (await openDataFolder(path)).close();

  for (const lock of [JSON.stringify({ ...ownProcess(), startTime: "1" }), '{"pid":', ""]) {
    await writeFile(join(path, "lock.json"), lock);
    await (await openDataFolder(path)).close();
  }

  assert.equal(existsSync(join(path, "lock.json")), false);
});

test("of two that open a folder with a stale lock at once, one gets it", async (t) => {
  const stale = JSON.stringify({ ...ownProcess(), startTime: "1" });
  const openers = await Promise.all([startOpener(t), startOpener(t)]);

  // Both are loaded by now: only the opening itself is left, so that they truly meet.
  for (let round = 1; round <= 10; round++) {
    const path = join(base, `contested ${round}`);
    await (await openDataFolder(path)).close();
    await writeFile(join(path, "lock.json"), stale);
    const answers = await Promise.all(openers.map(({ open }) => open(path)));
    assert.deepEqual(answers.sort(), ["conflict", "opened"], `round ${round}`);
  }
});

test("a path that is, or leads through, a file is refused", async () => {
  const file = join(base, "file");
  await writeFile(file, "");

  for (const path of [file, join(file, "below")]) {
    await assert.rejects(openDataFolder(path), {
      code: "unavailable",
      message: /Expected a data folder in .*file.*Choose another folder with --data/,
    });
  }
});

test("a path that is longer than the system allows is refused", async () => {
  await assert.rejects(openDataFolder(join(base, "z".repeat(300))), {
    code: "unavailable",
    message: /path is too long/,
  });
});

test("a read-only file system is refused", () => {
  assert.match(
    openOnMount("readonly", "mount -t tmpfs -o ro none readonly"),
    /^unavailable: Expected a data folder in `.*readonly`, but the file system is read-only.*--data/,
  );
  assert.match(
    openOnMount("readonly", "mount -t tmpfs -o ro none readonly", "readonly/below"),
    /^unavailable: .*read-only/,
  );
});

test("a full disk is refused and left as it is", () => {
  const fill = "head -c 1000000 /dev/zero > full/filler 2>/dev/null; mkdir -m 700 full/data";
  const answer = openOnMount(
    "full",
    `mount -t tmpfs -o size=64k none full && { ${fill}; }`,
    "full/data",
  );

  assert.match(
    answer,
    /^unavailable: Expected a data folder in `.*full\/data`, but the disk is full .*Free some space/,
  );
  assert.match(answer, /^left: \[\]$/m);
});

/** Opens a folder in a process that can mount, after `mounts`; says what came of it. */
function openOnMount(name: string, mounts: string, path = name): string {
  const script = `
    import { readdirSync } from "node:fs";
    import { openDataFolder } from ${JSON.stringify(moduleUrl)};
    const path = ${JSON.stringify(path)};
    try { await openDataFolder(path); console.log("opened"); }
    catch (error) { console.log(error.code + ": " + error.message); }
    try { console.log("left:", JSON.stringify(readdirSync(path))); } catch {}`;
  execFileSync("mkdir", ["-p", name], { cwd: base });
  return execFileSync(
    "unshare",
    [
      ...(process.getuid?.() === 0 ? [] : ["--map-root-user"]),
      "--mount",
      "sh",
      "-c",
      `${mounts} && exec "$0" "$@"`,
      process.execPath,
      ...nodeArgs,
      script,
    ],
    { cwd: base, encoding: "utf8", timeout: 30_000 },
  );
}

/** A process that opens what it is told to, and says how that went. */
async function startOpener(t: TestContext) {
  const script = `
    import { openDataFolder } from ${JSON.stringify(moduleUrl)};
    console.log("loaded");
    process.stdin.on("data", async (path) => {
      console.log(await openDataFolder(String(path)).then(() => "opened", (error) => error.code));
    });`;
  const child = spawn(process.execPath, [...nodeArgs, script], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  const answer = async () => String((await once(child.stdout, "data"))[0]).trim();
  assert.equal(await answer(), "loaded");
  const open = (path: string) => {
    child.stdin.write(path);
    return answer();
  };
  return { child, open };
}
