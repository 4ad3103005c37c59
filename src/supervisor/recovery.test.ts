import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { isAlive, readProcess } from "../protocol/process-identity.ts";
import {
  createSupervisorFixture,
  endBy,
  type SupervisorFixture,
  until,
  webServer,
} from "./supervisor.fixture.ts";

const node = process.execPath;
const sleeper = { command: ["sleep", "60"], port: null, health: null };

test("after kill -9 of the supervisor its processes go on, and the next one adopts them", async (t) => {
  const fixture = open(t);
  const { start, want, healthy, statusWhen, readLog } = fixture;
  const supervisor = await start();
  want("web");
  want("other", sleeper);
  const before = [await healthy("web"), await healthy("other")];

  await endBy(supervisor, "SIGKILL");
  assert.ok(before.every(({ process }) => process !== null && isAlive(process)));
  await start();
  await until(() => readLog().split('"process adopted"').length === 3);
  want("third");
  await healthy("third");

  const after = [await healthy("web"), await healthy("other")];
  assert.deepEqual(
    after.map(({ process, port, restarts }) => ({ process, port, restarts })),
    before.map(({ process, port, restarts }) => ({ process, port, restarts })),
  );
  assert.deepEqual(namesOf(fixture), ["other", "third", "web"]);

  // An adopted process cannot be waited for, but is missed all the same.
  for (const { pid } of after) process.kill(pid, "SIGKILL");
  const again = await statusWhen(
    "web",
    ({ restarts, state }) => restarts === 1 && state === "healthy",
  );
  assert.equal(again.port, before[0]?.port);
  const other = await statusWhen("other", ({ restarts }) => restarts === 1);
  assert.match(other.reason ?? "", /its exit code is not known/);
});

test("what died while there was no supervisor is restored on its port, the rest is left alone", async (t) => {
  const fixture = open(t);
  const { start, want, healthy, statusWhen } = fixture;
  const supervisor = await start();
  want("web");
  want("other");
  const [web, other] = [await healthy("web"), await healthy("other")];

  await endBy(supervisor, "SIGKILL");
  process.kill(web.pid, "SIGKILL");
  await until(() => web.process !== null && !isAlive(web.process));
  await start();
  const restored = await statusWhen(
    "web",
    (status) => status.process?.pid !== web.pid && status.state === "healthy",
  );

  assert.equal(restored.port, web.port);
  assert.equal(restored.restarts, 1);
  assert.equal((await healthy("other")).pid, other.pid);
  assert.deepEqual(namesOf(fixture), ["other", "web"]);
});

test("what was changed or removed while there was no supervisor is caught up with", async (t) => {
  const fixture = open(t);
  const { start, want, unwant, healthy, status, statusWhen } = fixture;
  const supervisor = await start();
  want("changed");
  want("removed");
  const changed = await healthy("changed");
  await healthy("removed");

  await endBy(supervisor, "SIGKILL");
  want("changed", { revision: "2" });
  unwant("removed");
  await start();
  const next = await statusWhen(
    "changed",
    ({ revision, state }) => revision === "2" && state === "healthy",
  );
  await until(() => status("removed") === null);

  assert.equal(next.port, changed.port);
  assert.deepEqual(namesOf(fixture), ["changed"]);
});

test("a process that was started but never recorded is not doubled", async (t) => {
  const fixture = open(t);
  const { start, want, healthy, directory } = fixture;
  const supervisor = await start();
  want("web");
  const unrecorded = await healthy("web");
  await endBy(supervisor, "SIGKILL");
  rmSync(join(directory, "status", "web.json"));

  await start();
  const { pid } = await healthy("web");

  assert.notEqual(pid, unrecorded.pid);
  assert.deepEqual(namesOf(fixture), ["web"]);
});

test("a stranger that got the pid of a recorded process is neither adopted nor harmed", async (t) => {
  const { start, want, healthy, directory, status, statusWhen } = open(t);
  const supervisor = await start();
  want("web");
  const { pid } = await healthy("web");
  await endBy(supervisor, "SIGKILL");
  process.kill(pid, "SIGKILL");
  const stranger = spawn("sleep", ["60"], { detached: true, stdio: "ignore" });
  t.after(() => endBy(stranger, "SIGKILL"));
  const record = readProcess(stranger.pid ?? 0);
  const written = { ...status("web"), process: { ...record, startTime: "1" } };
  for (const name of ["web", "unwanted"]) {
    writeFileSync(join(directory, "status", `${name}.json`), JSON.stringify(written));
  }

  await start();
  await until(() => status("unwanted") === null);
  await statusWhen("web", (now) => now.process?.pid !== stranger.pid && now.state === "healthy");

  assert.ok(record !== null && isAlive(record));
});

test("after a restart of the machine everything is started anew, on its old port", async (t) => {
  const { start, want, healthy, directory, statusWhen, marked } = open(t);
  const supervisor = await start();
  want("web");
  const before = await healthy("web");
  await endBy(supervisor, "SIGKILL");
  process.kill(before.pid, "SIGKILL");
  await until(() => marked().length === 0);
  const file = join(directory, "status", "web.json");
  writeFileSync(file, readFileSync(file, "utf8").replace(/"bootId":"[^"]+"/, '"bootId":"earlier"'));

  await start();
  const after = await statusWhen(
    "web",
    ({ process, state }) => process?.bootId !== "earlier" && state === "healthy",
  );

  assert.deepEqual(
    { port: after.port, restarts: after.restarts },
    { port: before.port, restarts: 0 },
  );
});

test("a file that cannot be understood after a restart leaves its process as it is, until the end", async (t) => {
  const { start, want, healthy, directory, marked } = open(t);
  const first = await start();
  want("web");
  const { process: record } = await healthy("web");
  await endBy(first, "SIGKILL");
  writeFileSync(join(directory, "desired", "web.json"), "{");

  const second = await start();
  want("other");
  await healthy("other");
  assert.ok(record !== null && isAlive(record));

  assert.equal(await endBy(second, "SIGTERM"), 0);
  assert.deepEqual(marked(), []);
});

test("SIGTERM leaves nothing, not even what fled into a session of its own, and the next start brings all back", async (t) => {
  const { start, want, healthy, statusWhen, directory, marked } = open(t);
  const supervisor = await start();
  const flee = `const { spawn } = require("node:child_process");
    spawn("sh", ["-c", "trap '' TERM; setsid sh -c \\"trap '' TERM; sleep 61\\" & sleep 62"], { detached: true, stdio: "ignore" }).unref();
    ${webServer}`;
  want("flees", { command: [node, "-e", flee], stopGraceMs: 300 });
  want("deaf", {
    ...sleeper,
    command: ["sh", "-c", "trap '' TERM; while :; do sleep 63; done"],
    stopGraceMs: 100,
  });
  await healthy("flees");
  await healthy("deaf");
  await until(() => marked().filter(({ name }) => name === "flees").length >= 4);

  assert.equal(await endBy(supervisor, "SIGTERM"), 0);
  assert.deepEqual(marked(), []);
  assert.equal(statSync(join(directory, "supervisor.json"), { throwIfNoEntry: false }), undefined);
  const stopped = await statusWhen("flees", ({ state }) => state === "stopped");
  assert.equal(stopped.process, null);

  await start();
  await healthy("flees");
  await healthy("deaf");
});

test("what a crashed process leaves behind is gone before it is started again", async (t) => {
  const fixture = open(t);
  const { start, want, healthy, statusWhen, marked } = fixture;
  await start();
  const leave = `require("node:child_process").spawn("setsid", ["sleep", "64"], { stdio: "ignore" }); ${webServer}`;
  want("web", { command: [node, "-e", leave] });
  const { pid } = await healthy("web");
  await until(() => marked().length === 2);
  const left = marked().map((one) => one.pid);

  process.kill(pid, "SIGKILL");
  await statusWhen("web", ({ restarts, state }) => restarts === 1 && state === "healthy");

  assert.deepEqual(
    marked().filter((one) => left.includes(one.pid)),
    [],
  );
});

test("a program that ends at once, and leaves a child behind, piles up no children", async (t) => {
  const { start, want, statusWhen, marked } = open(t);
  await start();

  want("forks", { ...sleeper, command: ["sh", "-c", "setsid sleep 65 & exit 0"] });
  await statusWhen("forks", ({ restarts }) => restarts >= 3);

  await until(() => marked().length === 0);
});

test("at the end components stop first, then the agent by SIGINT, then the registry", async (t) => {
  const { start, want, healthy, directory } = open(t);
  const supervisor = await start();
  const file = join(directory, "order");
  const tell = (name: string, signal: string) => ({
    ...sleeper,
    stopGraceMs: 30_000,
    command: [
      node,
      "-e",
      `process.on("${signal}", () => setTimeout(() => {
        require("node:fs").appendFileSync(${JSON.stringify(file)}, "${name} "); process.exit();
      }, 50)); setInterval(() => {}, 1000); require("node:fs").writeFileSync(${JSON.stringify(`${file}.${name}`)}, "")`,
    ],
    health: {
      command: ["test", "-e", `${file}.${name}`],
      intervalMs: 1000,
      timeoutMs: 20_000,
      threshold: 3,
    },
  });
  want("@registry", tell("registry", "SIGTERM"));
  want("@agent", { ...tell("agent", "SIGINT"), stopSignal: "SIGINT" });
  want("app", tell("app", "SIGTERM"));
  await Promise.all(["@registry", "@agent", "app"].map(healthy));

  // A group's signal arrives twice: the second one changes nothing.
  supervisor.kill("SIGINT");
  assert.equal(await endBy(supervisor, "SIGTERM"), 0);

  assert.equal(readFileSync(file, "utf8"), "app agent registry ");
});

test("a supervisor whose folder was removed stops what it started, and ends", async (t) => {
  const { start, want, healthy, directory, marked } = open(t);
  const supervisor = await start();
  want("quiet", { ...sleeper, directory: "/" });
  await healthy("quiet");

  rmSync(directory, { recursive: true });
  await until(() => supervisor.exitCode !== null);

  assert.deepEqual(marked(), []);
});

function open(t: TestContext): SupervisorFixture {
  const fixture = createSupervisorFixture();
  t.after(fixture.clean);
  return fixture;
}

function namesOf({ marked }: SupervisorFixture): (string | null)[] {
  return marked()
    .map(({ name }) => name)
    .sort();
}
