/**
 * Which processes belong to a job, found without having been their parent: by the mark in their
 * environment, and by the session that its shim opened. Linux; elsewhere only the process group.
 *
 * Invariant: a process is only ever killed after it was seen to carry this very job's mark or session.
 */
import { readdirSync, readFileSync } from "node:fs";

/** The environment variable that every process of a job inherits; its value is the folder's name. */
export const jobMark = "LANDFALL_JOB";

export interface TreeProcess {
  readonly pid: number;
  readonly parentPid: number;
  readonly session: number;
  readonly startTime: string;
}

/** All live processes that carry the mark or belong to the session; zombies are gone already. */
export function findTree(mark: string, session: number | null): TreeProcess[] {
  if (process.platform !== "linux") return [];
  return readdirSync("/proc").flatMap((name) => {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) return [];
    const found = readStat(pid);
    if (!found) return [];
    return found.session === session || hasMark(pid, mark) ? [found] : [];
  });
}

/** The live children of a process. */
export function childrenOf(pid: number): number[] {
  if (process.platform !== "linux") return [];
  return readdirSync("/proc")
    .map(Number)
    .filter((child) => Number.isInteger(child) && readStat(child)?.parentPid === pid);
}

/** True for a live process that was started with the job's mark. */
export function carriesMark(pid: number, mark: string): boolean {
  return readStat(pid) !== null && hasMark(pid, mark);
}

/** Sends a signal; false when there is no such process any more. */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ESRCH") return false;
    throw error;
  }
}

/** Null for a process that is gone, or a zombie. */
export function readStat(pid: number): TreeProcess | null {
  const stat = readProc(pid, "stat");
  if (stat === null) return null;
  // The name in parentheses may hold spaces and parentheses itself.
  const [state, parentPid, , session, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const startTime = rest[15];
  if (state === "Z" || state === "X" || startTime === undefined) return null;
  return { pid, parentPid: Number(parentPid), session: Number(session), startTime };
}

function hasMark(pid: number, mark: string): boolean {
  const environment = readProc(pid, "environ");
  return environment !== null && `\0${environment}`.includes(`\0${jobMark}=${mark}\0`);
}

/** Null when the process is gone, or is another user's. */
function readProc(pid: number, file: string): string | null {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch {
    return null;
  }
}
