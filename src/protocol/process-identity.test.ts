/** Real processes: a live one, a dead one, a zombie, and one with an awkward name. */
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { isAlive, ownProcess, readProcess } from "./process-identity.ts";

test("this process is alive, and its record is the same at each reading", () => {
  const own = ownProcess();

  assert.equal(own.pid, process.pid);
  assert.deepEqual(readProcess(process.pid), own);
  assert.equal(isAlive(own), true);
});

test("a process that was killed is not alive", async () => {
  const child = spawn("sleep", ["60"], { stdio: "ignore" });
  const record = readProcess(pidOf(child));
  assert(record);
  assert.equal(isAlive(record), true);

  child.kill("SIGKILL");
  await once(child, "exit");

  assert.equal(isAlive(record), false);
  assert.equal(readProcess(record.pid), null);
});

test("a zombie is not alive", async () => {
  // The shell starts a child and becomes `sleep`, which never reaps it.
  const parent = spawn("sh", ["-c", "sleep 60 & echo $!; exec sleep 60"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  const [line] = await once(parent.stdout, "data");
  const pid = Number(String(line).trim());
  await waitFor(() => field(pidOf(parent), "comm").endsWith("sleep"));
  process.kill(pid, "SIGKILL");
  await waitFor(() => field(pid, "stat").startsWith("Z"));

  assert.equal(readProcess(pid), null);

  parent.kill("SIGKILL");
  await once(parent, "exit");
});

test("another process with the recorded pid, or the same pid after a reboot, is not the recorded one", () => {
  const own = ownProcess();

  assert.equal(isAlive({ ...own, startTime: `${own.startTime}1` }), false);
  assert.equal(isAlive({ ...own, bootId: "another boot" }), false);
});

test("a program whose name holds spaces and parentheses is read right", async () => {
  const folder = await mkdtemp(join(tmpdir(), "landfall-"));
  const program = join(folder, "a) R 1 (b");
  await cp(execFileSync("sh", ["-c", "command -v sleep"], { encoding: "utf8" }).trim(), program);
  const child = spawn(program, ["60"], { stdio: "ignore" });
  await once(child, "spawn");

  const record = readProcess(pidOf(child));
  child.kill("SIGKILL");
  await once(child, "exit");
  await rm(folder, { recursive: true });

  assert(record);
  assert.match(record.startTime, process.platform === "linux" ? /^\d+$/ : /\d{4}/);
});

test("what is no pid names no process", () => {
  for (const pid of [0, -1, 1.5, Number.NaN, 2 ** 40]) assert.equal(readProcess(pid), null);
});

/** Asked of /proc where there is one, since `ps` is not on every machine. */
function field(pid: number, name: "comm" | "stat"): string {
  if (process.platform !== "linux") {
    return execFileSync("ps", ["-o", `${name}=`, "-p", String(pid)], { encoding: "utf8" }).trim();
  }
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const [, comm = "", state = ""] = stat.match(/\((.*)\) (\S)/) ?? [];
  return name === "comm" ? comm : state;
}

async function waitFor(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5000;
  while (!condition()) {
    assert(Date.now() < deadline, "the condition did not come true in time");
    await new Promise(setImmediate);
  }
}

function pidOf(child: ChildProcess): number {
  assert(child.pid !== undefined);
  return child.pid;
}
