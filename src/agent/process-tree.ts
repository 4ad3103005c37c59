/**
 * Which processes belong to a job, found without having been their parent: by the mark in their
 * environment, and by the session that its shim opened. Linux; elsewhere only the process group.
 *
 * Invariant: a process is only ever killed after it was seen to carry this very job's mark or session.
 */
import { readdirSync, readFileSync } from "node:fs";

/** The environment variable that every process of a job inherits; its value is the folder's name. */
export const jobMark = "LANDFALL_JOB";

/** The variable that names what a job changes, so that it is found also by who does not know its folder. */
export const componentMark = "LANDFALL_COMPONENT";

export interface TreeProcess {
  readonly pid: number;
  readonly parentPid: number;
  readonly session: number;
  readonly startTime: string;
}

/** All live processes that carry the mark or belong to the session; zombies are gone already. */
export function findTree(mark: string, session: number | null): TreeProcess[] {
  return allProcesses().filter(
    (found) => found.session === session || readMark(found.pid, jobMark) === mark,
  );
}

/** All live processes of this machine that can be seen, but for this one. */
export function allProcesses(): TreeProcess[] {
  if (process.platform !== "linux") return [];
  return readdirSync("/proc").flatMap((name) => {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) return [];
    return readStat(pid) ?? [];
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
  return readStat(pid) !== null && readMark(pid, jobMark) === mark;
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

/** The value of a mark in the environment with which a process was started, or null. */
export function readMark(pid: number, name: string): string | null {
  const environment = `\0${readProc(pid, "environ") ?? ""}`;
  const start = environment.indexOf(`\0${name}=`);
  if (start < 0) return null;
  const from = start + name.length + 2;
  return environment.slice(from, environment.indexOf("\0", from));
}

/** Its number in each namespace that it is in, the outermost first; empty when it is gone. */
export function readNumbers(pid: number): number[] {
  const line = readProc(pid, "status")?.match(/^NSpid:\s*(.*)$/m)?.[1];
  return line?.trim().split(/\s+/).map(Number) ?? [];
}

/** Null when the process is gone, or is another user's. */
function readProc(pid: number, file: string): string | null {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch {
    return null;
  }
}
