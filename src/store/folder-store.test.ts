/** The store in a folder keeps the contract, and what lies on the disk tells nothing. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import type { JobId } from "../model/ids.ts";
import { createFolderStore, openFolderStore } from "./folder-store.ts";
import { testStore } from "./store-conformance.ts";

const fence = {
  component: "db",
  jobId: `job_${"0".repeat(24)}` as JobId,
  epoch: { generation: 1, n: 1 },
};

testStore("folder store", (use) =>
  inFolder(async (folder) => {
    const first = await createFolderStore(folder);
    const second = await openFolderStore(folder);
    await use(first, second);
    await first.close();
    await second.close();
  }),
);

test("folder store: no value is on the disk in clear, and nobody else may look", () =>
  inFolder(async (folder) => {
    const store = await createFolderStore(folder);
    await store.openFence(fence);

    await store.write("outputs/db", Buffer.from("canary-in-the-store"), {
      expectedVersion: null,
      fence,
    });

    for (const file of await readdir(folder)) {
      assert(!(await readFile(join(folder, file))).includes("canary-in-the-store"), file);
    }
    assert.equal((await stat(folder)).mode & 0o777, 0o700);
    assert.equal((await stat(join(folder, "store.key"))).mode & 0o777, 0o600);
    await store.close();
  }));

test("folder store: a lost key is said, not replaced", () =>
  inFolder(async (folder) => {
    await (await createFolderStore(folder)).close();
    await rm(join(folder, "store.key"));

    await assert.rejects(createFolderStore(folder), /store\.key/);
    await assert.rejects(openFolderStore(folder), { code: "not_found" });
  }));

test("folder store: a store that was never made is said", () =>
  inFolder(async (folder) => {
    await assert.rejects(openFolderStore(folder), { code: "not_found" });
  }));

test("folder store: several processes create and count in one store, and no count is lost", () =>
  inFolder(async (folder) => {
    const count = (name: string) => `
      import { createFolderStore } from ${JSON.stringify(join(import.meta.dirname, "folder-store.ts"))};
      const store = await createFolderStore(${JSON.stringify(folder)});
      const fence = ${JSON.stringify(fence)};
      await store.openFence(fence);
      for (let done = 0; done < 20; ) {
        const found = await store.read("count");
        const next = Buffer.from(String(Number(found ? Buffer.from(found.value).toString() : 0) + 1));
        try {
          await store.write("count", next, { expectedVersion: found?.version ?? null, fence });
          done += 1;
        } catch (error) { if (error.code !== "conflict") throw error; }
      }
      await store.close(); // ${name}`;

    await Promise.all(
      ["a", "b", "c"].map((name) =>
        promisify(execFile)(process.execPath, ["--input-type=module", "-e", count(name)]),
      ),
    );

    const store = await openFolderStore(folder);
    assert.equal(Buffer.from((await store.read("count"))?.value ?? []).toString(), "60");
    await store.close();
  }));

test("folder store: a full disk is said for what it is, keeps what was there, and passes", () =>
  inFolder(async (folder) => {
    const script = `
      import { rmSync, writeFileSync } from "node:fs";
      import { createFolderStore } from ${JSON.stringify(join(import.meta.dirname, "folder-store.ts"))};
      const fence = ${JSON.stringify(fence)};
      const options = { expectedVersion: "any", fence };
      const store = await createFolderStore("small/store");
      await store.openFence(fence);
      await store.write("outputs/db", Buffer.from("before"), options);
      try { writeFileSync("small/filler", Buffer.alloc(8 << 20)); } catch {}
      const say = (error) => console.log(error.code + ": " + error.message);
      await store.write("outputs/db", Buffer.alloc(1 << 20), options).catch(say);
      console.log(Buffer.from((await store.read("outputs/db")).value).toString());
      rmSync("small/filler");
      await store.write("outputs/db", Buffer.from("after"), options);
      console.log(Buffer.from((await store.read("outputs/db")).value).toString());`;
    const mount = "mkdir small && mount -t tmpfs -o size=4m none small";

    const { stdout } = await promisify(execFile)(
      "unshare",
      [
        ...(process.getuid?.() === 0 ? [] : ["--map-root-user"]),
        "--mount",
        "sh",
        "-c",
        `${mount} && exec "$0" --disable-warning=ExperimentalWarning --input-type=module -e "$1"`,
        process.execPath,
        script,
      ],
      { cwd: join(folder, "..") },
    );

    const [refusal = "", ...values] = stdout.trim().split("\n");
    assert.match(
      refusal,
      /^unavailable: Expected .* store, but the disk is full\. Free some space/,
    );
    assert.deepEqual(values, ["before", "after"]);
  }));

async function inFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const parent = await mkdtemp(join(tmpdir(), "landfall-store-"));
  try {
    await use(join(parent, "store"));
  } finally {
    await rm(parent, { recursive: true, force: true });
  }
}
