/**
 * Which process a record speaks of: a pid alone is reused, so a record also holds the process's start
 * time and the boot it belongs to.
 *
 * Invariant: a process counts as alive only while it is the very one that was recorded and can still
 * act. A zombie cannot: under an init that does not reap, it keeps its pid and start time for ever.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import type { ProcessRecord } from "./job-folder.ts";

const psTimeoutMs = 5000;
const psOutputBytesMax = 64 * 1024;

/** What a record must hold of a process, or null when there is none with this pid, or only a zombie. */
export function readProcess(pid: number): ProcessRecord | null {
  if (!Number.isSafeInteger(pid) || pid <= 0) return null;
  return process.platform === "linux" ? readFromProc(pid) : readFromPs(pid);
}

/** True while the recorded process, and not another one that got its pid, is running. */
export function isAlive(record: ProcessRecord): boolean {
  const current = readProcess(record.pid);
  return (
    current !== null && current.startTime === record.startTime && current.bootId === record.bootId
  );
}

/** The record of this process. */
export function ownProcess(): ProcessRecord {
  const own = readProcess(process.pid);
  if (own === null) throw new Error(`Expected to find this process (${process.pid}), got none.`);
  return own;
}

function readFromProc(pid: number): ProcessRecord | null {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch (error) {
    // ENOENT: gone. ESRCH: gone between open and read.
    if (error instanceof Error && "code" in error && /^(ENOENT|ESRCH)$/.test(String(error.code))) {
      return null;
    }
    throw error;
  }
  // The second field is the name in parentheses, and may hold spaces and parentheses itself.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [state] = fields;
  const threads = Number(fields[17]);
  const startTime = fields[19];
  // While other threads run, a first thread that has ended shows as a zombie of a living process.
  const isGone = state === "X" || (state === "Z" && threads <= 1);
  if (startTime === undefined || isGone) return null;
  const bootId = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  return { pid, startTime, bootId };
}

function readFromPs(pid: number): ProcessRecord | null {
  const line = run("ps", ["-o", "stat=,lstart=", "-p", String(pid)]);
  const [, state = "", startTime = ""] = line?.match(/^(\S+)\s+(.+)$/) ?? [];
  if (startTime === "" || state.startsWith("Z")) return null;
  return { pid, startTime, bootId: run("sysctl", ["-n", "kern.boottime"]) ?? "unknown" };
}

/** The trimmed output of a program, or null when it ends with a failure (ps: no such process). */
function run(program: string, args: readonly string[]): string | null {
  try {
    return execFileSync(program, args, {
      encoding: "utf8",
      timeout: psTimeoutMs,
      maxBuffer: psOutputBytesMax,
      stdio: ["ignore", "pipe", "ignore"],
      env: { PATH: "/bin:/usr/bin:/sbin:/usr/sbin", LC_ALL: "C", TZ: "UTC" },
    }).trim();
  } catch (error) {
    if (error instanceof Error && "status" in error && error.status !== null) return null;
    throw error;
  }
}
