/** The live processes of one data folder, told apart by what they were started as. */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";

export type ProcessKind =
  | "server"
  | "postgres"
  | "registry"
  | "supervisor"
  | "agent"
  | "shim"
  | "isolation"
  | "executor"
  | "plugin"
  | "other";

export interface LiveProcess {
  readonly pid: number;
  readonly kind: ProcessKind;
  /** The install's id, `build` for the build agent, null for what belongs to neither. */
  readonly place: string | null;
  /** `job_….generation.n` of whatever runs for a job. */
  readonly jobFolder: string | null;
  readonly command: string;
}

/** All of them; zombies are gone already. */
export function liveProcesses(data: string): LiveProcess[] {
  return readdirSync("/proc").flatMap((name) => {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) return [];
    const command = read(pid, "cmdline").replaceAll("\0", " ").trim();
    if (command === "") return [];
    const environment = read(pid, "environ");
    if (![command, environment, workingFolder(pid)].some((text) => text.includes(data))) return [];
    const jobFolder =
      /\bLANDFALL_JOB=(\S+?)\0/.exec(environment)?.[1] ??
      /\/jobs\/(job_\w+\.\d+\.\d+)/.exec(command)?.[1] ??
      null;
    const place =
      /\/installs\/(ins_\w+)/.exec(command)?.[1] ??
      /\/installs\/(ins_\w+)\/agent\/jobs/.exec(environment)?.[1] ??
      (/\/build-agent\//.test(command + environment) ? "build" : null);
    return [{ pid, kind: kindOf(command, jobFolder !== null), place, jobFolder, command }];
  });
}

function kindOf(command: string, isJobs: boolean): ProcessKind {
  if (isJobs) {
    if (command.startsWith("/bin/sh ")) return "shim";
    if (/^(bwrap|unshare) /.test(command)) return "isolation";
    if (/\/executor\.(mjs|ts) /.test(command)) return "executor";
    return /\/plugin\.(mjs|ts) /.test(command) ? "plugin" : "other";
  }
  if (/\/server\.(mjs|ts) /.test(command)) return "server";
  if (/cluster_name=/.test(command)) return "postgres";
  if (/\/registry\.(mjs|ts) /.test(command)) return "registry";
  if (/\/supervisor\.(mjs|ts) /.test(command)) return "supervisor";
  return /\/agent\.(mjs|ts) /.test(command) ? "agent" : "other";
}

/** Sends a signal to a process that may be gone by now. */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}

function read(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch {
    return "";
  }
}

function workingFolder(pid: number): string {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return "";
  }
}
