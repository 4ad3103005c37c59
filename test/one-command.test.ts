/** What a newcomer does first: one command, twice, as root and as an ordinary user. */
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { chownSync, mkdirSync, symlinkSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { test } from "node:test";
import { createPlace, processesOf, runOnce, startSystem } from "./system.ts";

const expected = ["credentials", "database", "greeter", "migration", "theme", "web"];

test("one command deploys the example, asks it, and leaves no process; again, and it makes no job", async (t) => {
  const place = await createPlace();
  t.after(place.remove);

  const first = await runOnce(place);

  assert.equal(first.exitCode, 0, first.output);
  assert.equal(first.summary.ok, true);
  assert.deepEqual(first.summary.components.map(({ name }) => name).sort(), expected);
  assert(first.summary.components.every(({ state }) => state === "active"));
  // One provision; a build, a sync, a plan and an apply of each component.
  assert.equal(first.summary.jobs, 1 + 4 * expected.length);
  assert.equal(first.summary.artifacts, expected.length);
  assert(first.summary.bytes_copied > 0);
  assert.deepEqual(processesOf(place.data), []);

  const second = await runOnce(place);

  assert.equal(second.exitCode, 0, second.output);
  assert.equal(second.summary.jobs, 0);
  assert.equal(second.summary.bytes_copied, 0);
  assert.deepEqual(processesOf(place.data), []);
});

test("an ordinary user gets the same, with no right to anything else", async (t) => {
  const place = await createPlace();
  t.after(place.remove);
  const uid = process.getuid?.() === 0 ? 64_999 : undefined;
  const home = join(place.data, "home");
  mkdirSync(home);
  if (uid !== undefined) for (const folder of [place.data, home]) chownSync(folder, uid, uid);
  const environment = { PATH: process.env.PATH, HOME: home, LANG: "C.UTF-8" };
  const options = { ...place, data: join(home, "data"), environment };

  const first = await runOnce(uid === undefined ? options : { ...options, uid });
  const second = await runOnce(uid === undefined ? options : { ...options, uid });

  assert.equal(first.exitCode, 0, first.output);
  assert.deepEqual([second.exitCode, second.summary.jobs], [0, 0], second.output);
  assert.deepEqual(processesOf(options.data), []);
});

test("root without user namespaces, as in a default container, gets the same", async (t) => {
  if (process.getuid?.() !== 0) return t.diagnostic("only root can bar them: shown in CI");
  const place = await createPlace();
  t.after(place.remove);
  const barred = ["python3", join(import.meta.dirname, "fixtures/without-user-namespaces.py")];
  const check = spawnSync(barred[0] ?? "", [...barred.slice(1), "unshare", "--user", "true"]);
  assert.notEqual(check.status, 0, "user namespaces are barred");

  const { exitCode, output } = await runOnce({ ...place, through: barred });

  assert.equal(exitCode, 0, output);
  assert.deepEqual(processesOf(place.data), []);
});

test("Ctrl-C stops everything: server, registries, agents, supervisor, app and PostgreSQL", async (t) => {
  const place = await createPlace();
  t.after(place.remove);
  const system = startSystem(place);
  await system.ready();
  assert(processesOf(place.data).length >= 8);

  assert.equal(await system.stop(), 0, system.output());

  assert.deepEqual(processesOf(place.data), []);
});

test("Ctrl-C in the middle of the first deploy leaves no process, and the next start finishes the work", async (t) => {
  const place = await createPlace();
  t.after(place.remove);
  const system = startSystem(place);
  while (!/credentials +(planning|applying)/.test(system.output())) {
    assert.equal(system.child.exitCode, null, system.output());
    await new Promise((resolve) => setTimeout(resolve, 20));
  }

  assert.equal(await system.stop(), 0, system.output());
  assert.deepEqual(processesOf(place.data), []);

  const next = await runOnce(place);
  assert.equal(next.exitCode, 0, next.output);
});

test("without terraform or tofu the module is shown as disabled, with the reason, and the rest runs", async (t) => {
  const place = await createPlace();
  const tools = await mkdtemp(join(tmpdir(), "lf-path-"));
  t.after(async () => {
    await place.remove();
    await rm(tools, { recursive: true, force: true });
  });
  linkToolsBut(tools, ["terraform", "tofu"]);

  const { exitCode, output, summary } = await runOnce({
    ...place,
    environment: { ...process.env, PATH: tools },
  });

  assert.equal(exitCode, 0, output);
  const theme = summary.components.find(({ name }) => name === "theme");
  assert.equal(theme?.state, "disabled");
  assert.match(output, /neither `terraform` nor `tofu`/);
  assert.equal(summary.components.filter(({ state }) => state === "active").length, 5);
});

test("an app that fails ends non-zero, with the reason and the job's log", async (t) => {
  const place = await createPlace();
  t.after(place.remove);

  const { exitCode, output, summary } = await runOnce({
    ...place,
    app: join(import.meta.dirname, "fixtures/failing-app"),
  });

  assert.notEqual(exitCode, 0);
  assert.equal(summary.ok, false);
  assert.match(output, /the line before it failed/);
  assert.deepEqual(processesOf(place.data), []);
});

/** A folder of links to everything on the PATH but some programs. */
function linkToolsBut(folder: string, absent: readonly string[]): void {
  for (const directory of (process.env.PATH ?? "").split(delimiter).reverse()) {
    const names = execFileSync("sh", ["-c", 'ls -1 "$1" 2>/dev/null || true', "sh", directory], {
      encoding: "utf8",
      maxBuffer: 16 * 1024 * 1024,
    });
    for (const name of names.split("\n").filter((each) => each && !absent.includes(each))) {
      try {
        symlinkSync(join(directory, name), join(folder, name));
      } catch {
        // Two folders of the PATH have it: the first that was linked is as good.
      }
    }
  }
}
