/**
 * Finds everything that belongs to a supervised process: its group, its session, and what left both
 * (`setsid`), by a mark in the environment that children inherit.
 *
 * Invariant: only what bears the mark of this very folder, or is in the session of a process that this
 * supervisor itself saw alive, is ever signalled. A zombie is nobody.
 */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { digestOf } from "../model/json.ts";
import type { ProcessRecord } from "../protocol/job-folder.ts";
import { isAlive } from "../protocol/process-identity.ts";

/** The variable that holds the mark: `<digest of the folder's path>:<name>`. */
export const markVariable = "LANDFALL_SUPERVISED";
const markDigits = 24;
const psTimeoutMs = 5000;
const psOutputBytesMax = 8 * 1024 * 1024;

/** A running process, as the search for members sees it. */
export interface Sighting {
  readonly pid: number;
  readonly group: number;
  readonly session: number;
  readonly startTime: string;
  /** The name in its mark, or null when it bears none of this folder. */
  readonly name: string | null;
}

/** What every mark of this folder (its real path) begins with. */
export function markPrefix(directory: string): string {
  return `${digestOf(directory).slice("sha256:".length).slice(0, markDigits)}:`;
}

/** All processes of the machine that can be seen; where there is no /proc, without their marks. */
export function sightProcesses(prefix: string): Sighting[] {
  if (process.platform !== "linux") return sightByPs();
  return readdirSync("/proc")
    .filter((entry) => /^\d+$/.test(entry))
    .map((entry) => sight(Number(entry), prefix))
    .filter((sighting) => sighting !== null);
}

/** Those of one name; `seen` is its main process, if this supervisor saw it alive. */
export function membersOf(
  sightings: readonly Sighting[],
  name: string,
  seen: ProcessRecord | null,
): number[] {
  // A session keeps its number from reuse only while somebody is in it.
  const reused = sightings.some((one) => one.pid === seen?.pid && one.startTime !== seen.startTime);
  const session = reused ? null : seen?.pid;
  return sightings
    .filter((one) => one.name === name || one.group === session || one.session === session)
    .map((one) => one.pid);
}

/** Signals the main process's whole group, when the main process is still the recorded one. */
export function signalGroup(main: ProcessRecord, signal: NodeJS.Signals): void {
  if (isAlive(main)) sendSignal(-main.pid, signal);
}

/** Sends the signal; a process that is gone already, or not ours to signal, is passed over. */
export function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // ESRCH: gone. EPERM: it changed its user; it stays in sight and the caller tells of it.
  }
}

function sight(pid: number, prefix: string): Sighting | null {
  if (pid === process.pid) return null;
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the name in parentheses, and may hold spaces and parentheses itself.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const [state, , group, session] = fields;
    // A dead first thread is shown while others still hold files and ports: that is not gone yet.
    const threads = Number(fields[17]);
    if (state === "X" || (state === "Z" && threads <= 1)) return null;
    const name = readMark(pid, prefix);
    const startTime = fields[19] ?? "";
    return { pid, group: Number(group), session: Number(session), startTime, name };
  } catch {
    return null;
  }
}

function sightByPs(): Sighting[] {
  const lines = execFileSync("ps", ["-axo", "pid=,pgid=,stat=,lstart="], {
    encoding: "utf8",
    timeout: psTimeoutMs,
    maxBuffer: psOutputBytesMax,
    env: { PATH: "/bin:/usr/bin", LC_ALL: "C", TZ: "UTC" },
  });
  return lines.split("\n").flatMap((line) => {
    const [, pid, group, state = "Z", startTime = ""] =
      line.match(/^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.*?)\s*$/) ?? [];
    if (state.startsWith("Z")) return [];
    const session = Number(group);
    return [{ pid: Number(pid), group: session, session, startTime, name: null }];
  });
}

/** The kernel bounds what is read here: an environment has a few megabytes at most. */
function readMark(pid: number, prefix: string): string | null {
  let environment: string;
  try {
    environment = readFileSync(`/proc/${pid}/environ`, "latin1");
  } catch {
    return null;
  }
  const start = `${markVariable}=${prefix}`;
  const at = environment.startsWith(start) ? 0 : environment.indexOf(`\0${start}`) + 1;
  if (at === 0 && !environment.startsWith(start)) return null;
  const end = environment.indexOf("\0", at);
  return environment.slice(at + start.length, end === -1 ? undefined : end);
}
