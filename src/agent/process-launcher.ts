/**
 * The launcher that starts executors as processes of this machine, with or without bubblewrap.
 *
 *   agent ─spawns─> shim (sh, own session) ─> bwrap | unshare | nothing ─> executor
 *
 * The shim belongs to nobody: it writes `process.json` before the executor runs and `exit.json` after
 * it, also while no agent is alive. Its own death costs the exit code and nothing else.
 */
import { spawn } from "node:child_process";
import { closeSync, openSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { Fault } from "../model/fault.ts";
import { ExitRecord, jobFiles, ProcessRecord } from "../protocol/job-folder.ts";
import { isAlive, readProcess } from "../protocol/process-identity.ts";
import { aloneWith } from "./component-lock.ts";
import { readText } from "./foreign-file.ts";
import { bubblewrapFile, type Isolation, isolatingCommand, type Visible } from "./isolation.ts";
import type { Found, Launch, Launcher } from "./launcher.ts";
import { endOtherExecutors } from "./other-executors.ts";
import {
  carriesMark,
  childrenOf,
  componentMark,
  findTree,
  jobMark,
  readStat,
  signal,
} from "./process-tree.ts";

const recordBytesMax = 64 * 1024;
const recordWaitMs = 10_000;
const exitRecordWaitMs = 500;
const endWaitMs = 10_000;
const pollMs = 5;

/** `session` is the shim's pid; every process of the tree that did not leave it has it as its session. */
const LaunchRecord = ProcessRecord.extend({
  session: z.int().min(1),
  sessionStartTime: z.string(),
  isolation: z.enum(["bubblewrap", "namespace", "plain"]),
});
type LaunchRecord = z.output<typeof LaunchRecord>;

/**
 * $1: the folder, $2: the mark, $3: the isolation, $4: the component or nothing; then the command. The inner shell records itself and
 * becomes the executor, so the record is there before the executor runs and its start time is its own.
 * Only the inner shell carries the mark: the outer one must outlive the sweep to record the exit code.
 */
const shim = `
folder=$1 mark=$2 isolation=$3 component=$4; shift 4
read -r stat 2>/dev/null </proc/self/stat
field() { shift 19; printf %s "$1"; }
set -f
session=$$ session_start=$(field \${stat##*) })
(
  read -r stat </proc/self/stat && read -r boot </proc/sys/kernel/random/boot_id || exit 126
  printf '{"pid":%s,"startTime":"%s","bootId":"%s","session":%s,"sessionStartTime":"%s","isolation":"%s"}\\n' \
    "\${stat%% *}" "$(field \${stat##*) })" "$boot" "$session" "$session_start" "$isolation" >"$folder/${jobFiles.process}"
  export ${jobMark}="$mark"
  [ -z "$component" ] || export ${componentMark}="$component"
  exec "$@"
) &
wait $!
printf '{"exitCode":%d}\\n' $? >"$folder/${jobFiles.exit}"
`;

export interface ProcessLauncherOptions {
  readonly isolation: Isolation;
  readonly visible: Visible;
  /** The same for all agents of this machine and user. */
  readonly lockDirectory: string;
}

/** A launcher for this machine. */
export function createProcessLauncher(options: ProcessLauncherOptions): Launcher {
  return {
    async launch(folder, launch) {
      const writablePaths = [...options.visible.writablePaths, ...launch.writableFolders];
      const visible = { ...options.visible, writablePaths };
      startShim({ ...options, visible }, folder, launch);
      await until(recordWaitMs, async () => (await readRecord(folder)) || (await readExit(folder)));
      if (launch.component !== null) await untilMarked(folder);
      if ((await readRecord(folder)) || (await readExit(folder))) return;
      throw new Fault(
        "unavailable",
        `Expected the executor of ${basename(folder)} to start within ${recordWaitMs / 1000} s, got no sign of it. Look at the machine's load and at \`${jobFiles.stderr}\`.`,
      );
    },
    find,
    async ask(folder) {
      const record = await readRecord(folder);
      if (!record || !isAlive(record)) return;
      const pid = await executorPid(folder, record);
      if (pid !== null) signal(pid, "SIGTERM");
    },
    end,
    endOthers: endOtherExecutors,
    alone: (component, act) => aloneWith(options.lockDirectory, component, act),
  };
}

/** The record comes a moment before the mark by which others find the executor. */
async function untilMarked(folder: string): Promise<void> {
  if (process.platform !== "linux") return;
  await until(recordWaitMs, async () => {
    const record = await readRecord(folder);
    return !record || !isAlive(record) || carriesMark(record.pid, basename(folder));
  });
}

function startShim(
  { isolation, visible }: ProcessLauncherOptions,
  folder: string,
  { command, environment, component }: Launch,
): void {
  for (const name of [jobFiles.process, jobFiles.exit]) {
    writeFileSync(join(folder, name), "", { flag: "wx", mode: 0o600 });
  }
  const output = openSync(join(folder, jobFiles.stderr), "ax", 0o600);
  const status = openSync(join(folder, bubblewrapFile), "ax", 0o600);
  try {
    const whole = [...isolatingCommand(isolation, visible, folder, command), ...command, folder];
    const child = spawn(
      "/bin/sh",
      ["-c", shim, "landfall-job", folder, basename(folder), isolation, component ?? "", ...whole],
      {
        cwd: folder,
        detached: true,
        env: { ...environment },
        stdio: ["ignore", output, output, ...(isolation === "bubblewrap" ? [status] : [])],
      },
    );
    child.on("error", () => {}); // no /bin/sh: the missing record tells it
    child.unref();
  } finally {
    closeSync(output);
    closeSync(status);
  }
}

async function find(folder: string): Promise<Found> {
  const record = await readRecord(folder);
  if (record && (await isInnerAlive(folder, record))) return "running";
  const exited = await readExit(folder);
  if (exited) return exited;
  if (!record) return findTree(basename(folder), null).length > 0 ? "running" : "gone";
  if (isAlive(record)) return "running";
  // The executor has just ended and the shim may still be writing; without a shim nothing comes.
  const late = await until(exitRecordWaitMs, () => readExit(folder));
  return late ?? "gone";
}

/** Also when someone killed bwrap itself: what it started goes on, though the shim has recorded an end. */
async function isInnerAlive(folder: string, record: LaunchRecord): Promise<boolean> {
  if (record.isolation !== "bubblewrap" || !isThisBoot(record)) return false;
  const pid = (await readBubblewrap(folder)).childPid;
  return pid !== null && carriesMark(pid, basename(folder));
}

async function executorPid(folder: string, record: LaunchRecord): Promise<number | null> {
  if (record.isolation === "plain") return record.pid;
  if (record.isolation === "namespace") return childrenOf(record.pid)[0] ?? null;
  return (await readBubblewrap(folder)).childPid;
}

/** Kills round after round until a round finds nothing: a process may fork while it is swept. */
async function end(folder: string): Promise<void> {
  const mark = basename(folder);
  const record = await readRecord(folder);
  const deadline = performance.now() + endWaitMs;
  for (;;) {
    const session = record && isOwnSession(record) ? record.session : null;
    const tree = findTree(mark, session).filter(({ pid }) => pid !== session);
    if (record && isAlive(record) && !tree.some(({ pid }) => pid === record.pid)) {
      signal(record.pid, "SIGKILL");
    } else if (tree.length === 0) return;
    for (const { pid } of tree) signal(pid, "SIGKILL");
    if (performance.now() > deadline) {
      throw new Fault(
        "unavailable",
        `Expected every process of ${mark} to end within ${endWaitMs / 1000} s of being killed, but ${tree.map(({ pid }) => pid).join(", ")} still live. Look at what they wait for.`,
      );
    }
    await sleep(pollMs);
  }
}

/** A session's number is not given out again while a member lives; its leader, if any, must be our shim. */
function isOwnSession(record: LaunchRecord): boolean {
  if (!isThisBoot(record)) return false;
  const leader = readStat(record.session);
  return leader === null || leader.startTime === record.sessionStartTime;
}

function isThisBoot(record: ProcessRecord): boolean {
  return readProcess(process.pid)?.bootId === record.bootId;
}

async function readRecord(folder: string): Promise<LaunchRecord | null> {
  return parseOr(LaunchRecord, await readText(join(folder, jobFiles.process), recordBytesMax));
}

async function readExit(folder: string): Promise<{ exitCode: number } | null> {
  const recorded = await readText(join(folder, jobFiles.exit), recordBytesMax);
  return parseOr(ExitRecord, recorded) ?? (await readBubblewrap(folder)).exit;
}

/** Bubblewrap writes several JSON documents one after the other. */
async function readBubblewrap(
  folder: string,
): Promise<{ childPid: number | null; exit: { exitCode: number } | null }> {
  const text = (await readText(join(folder, bubblewrapFile), recordBytesMax)) ?? "";
  const childPid = text.match(/"child-pid":\s*(\d+)/)?.[1];
  const exitCode = text.match(/"exit-code":\s*(\d+)/)?.[1];
  return {
    childPid: childPid === undefined ? null : Number(childPid),
    exit: exitCode === undefined ? null : { exitCode: Number(exitCode) },
  };
}

/** Null for a file that is not there, or not written to its end yet. */
function parseOr<T>(schema: z.ZodType<T>, text: string | null): T | null {
  if (!text) return null;
  try {
    return schema.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

async function until<T>(waitMs: number, look: () => Promise<T | null>): Promise<T | null> {
  const deadline = performance.now() + waitMs;
  for (;;) {
    const found = await look();
    if (found || performance.now() > deadline) return found;
    await sleep(pollMs);
  }
}
