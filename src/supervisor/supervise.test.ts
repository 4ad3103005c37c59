import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { logBytesMax } from "./output-log.ts";
import { createSupervisorFixture, endBy, until, webServer } from "./supervisor.fixture.ts";

const node = process.execPath;

test("a wanted process is started, told its port, and healthy when it answers", async (t) => {
  const { start, want, healthy, directory } = open(t);
  await start();

  want("web", { environment: { GREETING: "hello" } });
  const { port, pid, restarts, revision } = await healthy("web");

  assert.deepEqual({ restarts, revision }, { restarts: 0, revision: "1" });
  assert.equal(await ask(port), String(pid));
  const environment = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0").filter(Boolean);
  const names = environment.map((pair) => pair.split("=")[0]).sort();
  assert.deepEqual(names, ["GREETING", "LANDFALL_SUPERVISED", "PATH", "PORT"]);
  assert.equal(JSON.parse(readFileSync(join(directory, "ports.json"), "utf8")).web, port);
});

test("a new wish is acted on within a moment", async (t) => {
  const { start, want, statusWhen } = open(t);
  await start();
  want("first", { command: ["sleep", "60"], port: null, health: null });
  await statusWhen("first", ({ process }) => process !== null);

  const times: number[] = [];
  for (const name of ["a", "b", "c", "d", "e"]) {
    const asked = performance.now();
    want(name, { command: ["sleep", "60"], port: null, health: null });
    await statusWhen(name, ({ process }) => process !== null);
    times.push(performance.now() - asked);
  }

  const [fastest = 0] = times.sort((a, b) => a - b);
  // About 20 ms was measured; the bound is for a busy machine.
  assert.ok(fastest < 250, `fastest ${fastest} ms`);
});

test("a process that crashes is restarted on the same port, and the restart is counted", async (t) => {
  const { start, want, healthy, statusWhen, marked } = open(t);
  await start();
  want("web");
  const first = await healthy("web");

  process.kill(first.pid, "SIGKILL");
  const second = await statusWhen(
    "web",
    ({ restarts, state }) => restarts === 1 && state === "healthy",
  );

  assert.notEqual(second.pid, first.pid);
  assert.equal(second.port, first.port);
  assert.equal(second.reason, "Ended by SIGKILL.");
  assert.equal(marked().length, 1);
});

test("a new revision replaces the old process, which is stopped first, on the same port", async (t) => {
  const { start, want, healthy, statusWhen, marked } = open(t);
  await start();
  want("web");
  const first = await healthy("web");

  want("web", { revision: "2" });
  const second = await statusWhen(
    "web",
    ({ revision, state }) => revision === "2" && state === "healthy",
  );

  assert.equal(second.port, first.port);
  assert.equal(second.restarts, 0);
  assert.deepEqual(
    marked().map(({ pid }) => pid),
    [second.pid],
  );
});

test("a process that is not wanted any more is stopped, and nothing speaks of it any more", async (t) => {
  const { start, want, unwant, healthy, status, marked } = open(t);
  await start();
  want("web");
  want("other");
  await healthy("web");
  const other = await healthy("other");

  unwant("web");
  await until(() => status("web") === null);

  assert.deepEqual(
    marked().map(({ name, pid }) => ({ name, pid })),
    [{ name: "other", pid: other.pid }],
  );
});

test("a program that does not exist is a reason and a backoff, and harms nobody else", async (t) => {
  const { start, want, healthy, statusWhen } = open(t);
  await start();
  want("absent", { command: ["/no/such/program"] });
  want("nowhere", { directory: "/no/such/directory" });
  want("web");

  await healthy("web");
  const absent = await statusWhen("absent", ({ restarts }) => restarts >= 2);
  const nowhere = await statusWhen("nowhere", ({ state }) => state === "backoff");

  assert.match(absent.reason ?? "", /ENOENT/);
  assert.match(nowhere.reason ?? "", /directory \/no\/such\/directory/);
});

test("a process that shall not be restarted is stopped once it ends, and says how it ended", async (t) => {
  const { start, want, statusWhen } = open(t);
  await start();

  want("once", {
    command: ["sh", "-c", "sleep 0.2; exit 7"],
    restart: "never",
    port: null,
    health: null,
  });
  const { reason, restarts } = await statusWhen("once", ({ state }) => state === "stopped");

  assert.deepEqual({ reason, restarts }, { reason: "Exited with code 7.", restarts: 0 });
});

test("a process whose health check fails is restarted", async (t) => {
  const { start, want, healthy, statusWhen, directory } = open(t);
  await start();
  const file = join(directory, "well");
  writeFileSync(file, "");
  const health = { command: ["test", "-e", file], intervalMs: 20, timeoutMs: 20_000, threshold: 2 };
  want("sick", { command: ["sleep", "60"], port: null, health });
  const first = await healthy("sick");

  rmSync(file);
  const { reason } = await statusWhen("sick", ({ restarts }) => restarts === 1);
  assert.match(reason ?? "", /health command ended with code 1/);
  writeFileSync(file, "");
  const second = await healthy("sick");

  assert.notEqual(second.pid, first.pid);
});

test("a TCP check is met by a listener, and a process without a check by being alive", async (t) => {
  const { start, want, healthy } = open(t);
  await start();

  want("tcp", { health: { tcp: true, intervalMs: 50, timeoutMs: 20_000, threshold: 3 } });
  want("quiet", { command: ["sleep", "60"], port: null, health: null });

  assert.notEqual((await healthy("tcp")).port, null);
  assert.equal((await healthy("quiet")).port, null);
});

test("files that are half written, of another form or of a bad name harm nobody", async (t) => {
  const { start, want, healthy, status, statusWhen, directory, readLog } = open(t);
  await start();
  want("web");
  const before = await healthy("web");

  const desired = join(directory, "desired");
  writeFileSync(join(desired, "half.json"), '{"version":1,"revision":');
  writeFileSync(
    join(desired, "other.json"),
    '{"version":2,"environment":{"KEY":"a-secret-value"}}',
  );
  writeFileSync(join(desired, "..json"), "{}");
  writeFileSync(join(desired, "a b.json"), "{}");
  mkdirSync(join(desired, "folder.json"));
  writeFileSync(join(desired, "web.json"), '{"version":1,"revi');
  want("later");
  await healthy("later");

  assert.equal(status("half"), null);
  assert.equal(status("other"), null);
  assert.equal((await healthy("web")).pid, before.pid);
  assert.ok(!readLog().includes("a-secret-value"));

  // What the file said before it broke goes on.
  process.kill(before.pid, "SIGKILL");
  await statusWhen("web", ({ restarts, state }) => restarts === 1 && state === "healthy");
  want("web", { revision: "2" });
  await statusWhen("web", ({ revision, state }) => revision === "2" && state === "healthy");
});

test("a status that cannot be written ends nothing, and is written when it can be", async (t) => {
  const { start, want, healthy, directory, readLog } = open(t);
  const supervisor = await start();
  rmSync(join(directory, "status"), { recursive: true });
  writeFileSync(join(directory, "status"), "not a folder");

  want("web");
  await until(() => readLog().includes('"state":"healthy"'));
  rmSync(join(directory, "status"));
  mkdirSync(join(directory, "status"));

  await healthy("web");
  assert.equal(supervisor.exitCode, null);
});

test("the output of a process is kept in its log, and the log is bounded", async (t) => {
  const { start, want, healthy, directory } = open(t);
  await start();
  const log = join(directory, "logs", "loud.log");
  const flood = `${webServer} console.error("begun"); process.stdout.write("x".repeat(${logBytesMax}));`;

  want("loud", { command: [node, "-e", flood] });
  await healthy("loud");
  await until(() => statSync(`${log}.1`, { throwIfNoEntry: false }) !== undefined);

  await until(() => statSync(log).size < logBytesMax);
  assert.ok(statSync(`${log}.1`).size <= logBytesMax);
});

test("one folder has one supervisor: a second one is refused, by name of the first", async (t) => {
  const { start, launch, readLog, want, healthy, directory } = open(t);
  const first = await start();
  want("web");
  const { pid } = await healthy("web");

  const second = launch();
  await until(() => second.exitCode !== null);

  assert.equal(second.exitCode, 3);
  assert.match(readLog(), new RegExp(`got process ${first.pid}`));
  assert.equal(JSON.parse(readFileSync(join(directory, "supervisor.json"), "utf8")).pid, first.pid);
  assert.equal((await healthy("web")).pid, pid);
});

test("of many supervisors that find a dead one's record at once, one takes over", async (t) => {
  const { start, launch } = open(t);
  await endBy(await start(), "SIGKILL");

  const many = Array.from({ length: 4 }, launch);
  await until(() => many.filter((one) => one.exitCode !== null).length === 3);

  assert.deepEqual(
    many.map((one) => one.exitCode).filter((code) => code !== null),
    [3, 3, 3],
  );
});

function open(t: TestContext) {
  const fixture = createSupervisorFixture();
  t.after(fixture.clean);
  return fixture;
}

async function ask(port: number | null): Promise<string> {
  const answer = await fetch(`http://127.0.0.1:${port}/`, { signal: AbortSignal.timeout(5000) });
  return answer.text();
}
