/**
 * What a PostgreSQL leaves behind when it, or the process that supervised it, was killed: a postmaster
 * that nobody supervises, server processes without a postmaster, lock files.
 *
 * Invariant: a lock file is removed only after every process with the cluster's mark has ended. A
 * zombie has ended; a stranger that got the recorded pid is not touched.
 */
import { execFile } from "node:child_process";
import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { Fault } from "../model/fault.ts";
import { errorCode } from "../model/file-fault.ts";
import type { ProcessRecord } from "../protocol/job-folder.ts";
import { isAlive, readProcess } from "../protocol/process-identity.ts";

const pollMs = 10;
const listBytesMax = 16 * 1024 * 1024;
const listTimeoutMs = 5000;

/**
 * SIGINT asks the postmaster, and it alone, for a fast shutdown: no recovery is needed at the next
 * start. SIGQUIT and SIGKILL go to every process and cost a recovery, but no committed row.
 */
const steps = [
  { signal: "SIGINT", graceMs: 20_000 },
  { signal: "SIGQUIT", graceMs: 5000 },
  { signal: "SIGKILL", graceMs: 5000 },
] as const;
/** How long server processes get to notice that their postmaster is gone. */
const noticeMs = 1000;

interface Marked {
  readonly process: ProcessRecord;
  readonly postmaster: boolean;
}

/** Ends every process of the cluster, the postmaster in the gentlest way that works. Returns their pids. */
export async function endProcesses(mark: string): Promise<number[]> {
  const found = await findMarked(mark);
  if (found.length === 0) return [];
  for (const { signal, graceMs } of steps) {
    const remaining = await findMarked(mark);
    const asked = remaining.filter((each) => each.postmaster || signal !== "SIGINT");
    for (const each of asked) send(each.process, signal);
    const waitMs = asked.length === 0 ? noticeMs : graceMs;
    if (await waitForEnd(mark, waitMs)) return found.map((each) => each.process.pid);
  }
  const pids = (await findMarked(mark)).map((each) => each.process.pid).join(", ");
  throw new Fault(
    "conflict",
    `Expected the PostgreSQL left by an earlier start to end, but process ${pids} remains. End it, then start again.`,
  );
}

/** Removes the lock files that block a start; call it only after `endProcesses`. */
export async function removeLockFiles(cluster: string): Promise<void> {
  await rm(join(cluster, "postmaster.pid"), { force: true });
}

async function waitForEnd(mark: string, timeoutMs: number): Promise<boolean> {
  const deadline = performance.now() + timeoutMs;
  let remaining = (await findMarked(mark)).map((each) => each.process);
  while (performance.now() < deadline) {
    remaining = remaining.filter(isAlive);
    if (remaining.length === 0) {
      // The postmaster may have started others after the list was made.
      remaining = (await findMarked(mark)).map((each) => each.process);
      if (remaining.length === 0) return true;
    }
    await delay(pollMs);
  }
  return false;
}

function send(target: ProcessRecord, signal: NodeJS.Signals): void {
  if (!isAlive(target)) return;
  try {
    process.kill(target.pid, signal);
  } catch (error) {
    if (errorCode(error) !== "ESRCH" && errorCode(error) !== "EPERM") throw error;
  }
}

async function findMarked(mark: string): Promise<Marked[]> {
  const lines = process.platform === "linux" ? await listProc() : await listPs();
  const marked: Marked[] = [];
  for (const [pid, commandLine] of lines) {
    if (pid === process.pid || !commandLine.includes(mark)) continue;
    const found = readProcess(pid);
    if (found === null) continue;
    marked.push({ process: found, postmaster: commandLine.includes(`cluster_name=${mark}`) });
  }
  return marked;
}

async function listProc(): Promise<[number, string][]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  return Promise.all(
    pids.map(async (pid): Promise<[number, string]> => {
      return [Number(pid), await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")];
    }),
  );
}

async function listPs(): Promise<[number, string][]> {
  const options = { maxBuffer: listBytesMax, timeout: listTimeoutMs };
  const { stdout } = await promisify(execFile)("ps", ["-axwwo", "pid=,args="], options);
  return stdout.split("\n").map((line) => {
    const [, pid = "0", commandLine = ""] = line.match(/^\s*(\d+)\s+(.*)$/) ?? [];
    return [Number(pid), commandLine];
  });
}
