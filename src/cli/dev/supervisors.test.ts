/** Real supervisor processes are played by a few lines of Node that keep the same record. */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { type InstallFolder, judgeProcess, lookAtInstalls } from "./install-folders.ts";
import { keepSupervisors, planSupervisors, type StartedSupervisor } from "./supervisors.ts";
import { waitFor } from "./wait-for.ts";

const record = { pid: 4711, startTime: "1", bootId: "b" };
const folder = (changes: Partial<InstallFolder> = {}): InstallFolder => ({
  id: "ins_a",
  provisioned: true,
  supervisor: null,
  ...changes,
});
const started = (changes: Partial<StartedSupervisor> = {}) =>
  new Map([["ins_a", { startedMs: 0, running: false, deaths: 1, ...changes }]]);

test("an install with a sandbox and no supervisor gets one", () => {
  assert.deepEqual(planSupervisors([folder()], new Map(), 0), [{ id: "ins_a", step: "start" }]);
});

test("a supervisor that runs is left alone, whoever started it", () => {
  assert.deepEqual(planSupervisors([folder({ supervisor: record })], new Map(), 0), []);
});

test("an install without a sandbox gets none, and loses the one it has", () => {
  assert.deepEqual(planSupervisors([folder({ provisioned: false })], new Map(), 0), []);
  assert.deepEqual(
    planSupervisors([folder({ provisioned: false, supervisor: record })], new Map(), 0),
    [{ id: "ins_a", step: "stop", pid: 4711 }],
  );
});

test("one that was just started is waited for, and one that dies often is given pauses", () => {
  assert.deepEqual(planSupervisors([folder()], started({ running: true }), 50), []);
  assert.deepEqual(planSupervisors([folder()], started({ deaths: 4 }), 500), []);
  assert.equal(planSupervisors([folder()], started({ deaths: 4 }), 5000).length, 1);
});

test("a process counts as running only when the very one that is desired lives and is healthy", () => {
  const desired = {
    version: 1 as const,
    revision: "r2",
    command: ["x"],
    directory: "/",
    environment: {},
    port: null,
    health: null,
    restart: "always" as const,
    stopSignal: "SIGTERM" as const,
    stopGraceMs: 0,
  };
  const status = {
    version: 1 as const,
    revision: "r2",
    state: "healthy" as const,
    process: record,
    port: null,
    restarts: 0,
    reason: null,
    since: "",
  };
  const alive = () => true;

  assert.equal(judgeProcess(desired, status, alive), null);
  assert.match(judgeProcess(desired, undefined, alive) ?? "", /not started/);
  assert.match(judgeProcess(desired, { ...status, revision: "r1" }, alive) ?? "", /not started/);
  assert.match(judgeProcess(desired, { ...status, state: "backoff" }, alive) ?? "", /backoff/);
  assert.match(judgeProcess(desired, status, () => false) ?? "", /died/);
  assert.equal(judgeProcess(undefined, undefined), null);
});

/** Keeps the record as the supervisor does, and ends when asked. */
const playedSupervisor = `
  const fs = require("node:fs");
  const directory = process.argv.at(-1);
  const stat = fs.readFileSync("/proc/self/stat", "utf8");
  const startTime = stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
  const bootId = fs.readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  fs.writeFileSync(directory + "/supervisor.json", JSON.stringify({ pid: process.pid, startTime, bootId }));
  process.on("SIGTERM", () => process.exit(0));
  setInterval(() => {}, 1000);
`;

test("supervisors are started, replaced when killed, stopped with their sandbox, and all at the end", {
  skip: process.platform !== "linux" && "reads /proc",
}, async (context) => {
  const installs = await mkdtemp(join(tmpdir(), "landfall-supervisors-"));
  const sandbox = (id: string) => join(installs, id, "sandbox.json");
  for (const id of ["ins_a", "ins_b"]) {
    await mkdir(join(installs, id));
    await writeFile(sandbox(id), "{}");
  }
  const script = join(installs, "played.cjs");
  await writeFile(script, playedSupervisor);
  const told: string[] = [];
  const supervisors = keepSupervisors({
    installs,
    command: [process.execPath, script],
    environment: {},
    logOf: (id) => join(installs, `${id}.log`),
    tell: (message) => void told.push(message),
  });
  context.after(async () => {
    await supervisors.stop(5000);
    await rm(installs, { recursive: true, force: true });
  });
  const pidOf = async (id: string) =>
    (await lookAtInstalls(installs)).find((one) => one.id === id)?.supervisor?.pid ?? null;
  const until = async (look: () => Promise<number | true | null>) => {
    const value = await waitFor(look, { timeoutMs: 15_000 });
    assert(value !== null);
    return value;
  };

  const first = Number(await until(() => pidOf("ins_a")));
  await until(() => pidOf("ins_b"));
  process.kill(first, "SIGKILL");
  await until(async () => {
    const pid = await pidOf("ins_a");
    return pid !== null && pid !== first ? pid : null;
  });
  assert.match(told.join("\n"), /supervisor of ins_a ended/);
  await rm(sandbox("ins_b"));
  await until(async () => ((await pidOf("ins_b")) === null ? true : null));
  const left = await supervisors.stop(10_000);

  assert.deepEqual(left, []);
  assert.equal(await pidOf("ins_a"), null);
  assert.equal(await readFile(join(installs, "ins_a.log"), "utf8"), "");
});
