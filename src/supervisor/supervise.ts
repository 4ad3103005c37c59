/**
 * The supervisor of one folder: makes what runs equal to what desired/ asks for, from the first look to the end.
 *
 *   start:  claim the folder -> adopt what still runs and is still wanted -> clear the rest away -> start the rest
 *   stop:   components -> @agent -> @registry -> sweep for anything that bears this folder's mark -> release
 *
 * Invariant: it keeps nothing in memory that its folder does not say, so that kill -9 loses nothing: the next
 * supervisor goes on from status/ and ports.json.
 */
import { existsSync, type FSWatcher, mkdirSync, realpathSync, watch } from "node:fs";
import { join } from "node:path";
import { describeError } from "../model/fault.ts";
import { isAlive, ownProcess } from "../protocol/process-identity.ts";
import { type DesiredProcess, supervisorFolders } from "../protocol/supervisor-folder.ts";
import { createDesiredFolder } from "./desired-folder.ts";
import type { Log } from "./log.ts";
import { boundLog } from "./output-log.ts";
import { createPortRecord } from "./port-record.ts";
import { markPrefix, type Sighting, sendSignal, sightProcesses } from "./process-mark.ts";
import type { Phase } from "./process-state.ts";
import { recover } from "./process-status.ts";
import { createStatusFolder } from "./status-folder.ts";
import {
  createSupervisedProcess,
  type SupervisedProcess,
  type Surroundings,
} from "./supervised-process.ts";
import { claimFolder, releaseFolder } from "./supervisor-record.ts";

/** The floor under `fs.watch`, which some file systems do not serve. */
const pollMs = 250;
const logLookMs = 1000;
/** So long what was killed may take to go (a process in an uninterruptible call) before it is given up. */
const unkillableMs = 10_000;
const portsFile = "ports.json";
const lastStage = 2;

export interface SupervisorOptions {
  readonly directory: string;
  /** PATH for processes that are given none. */
  readonly path: string;
  readonly log: Log;
  /** The monotonic clock in milliseconds. */
  readonly now: () => number;
  readonly date: () => Date;
  readonly random: () => number;
}

export interface Supervisor {
  /** Begins to stop everything; asking again changes nothing. */
  stop(): void;
  /** Resolves when everything has stopped; false when something would not die. */
  readonly ended: Promise<boolean>;
}

/** In which stage of the end a name is stopped: components, then who runs jobs, then what both need. */
export function stageOf(name: string): number {
  if (name === "@registry") return lastStage;
  return name.startsWith("@") ? 1 : 0;
}

/** Claims the folder and begins to supervise it; throws a Fault when another process does. */
export function startSupervisor(options: SupervisorOptions): Supervisor {
  const { log, now } = options;
  mkdirSync(options.directory, { recursive: true, mode: 0o700 });
  const directory = realpathSync(options.directory);
  for (const folder of Object.values(supervisorFolders)) {
    mkdirSync(join(directory, folder), { recursive: true, mode: 0o700 });
  }
  const own = ownProcess();
  claimFolder(directory, own);

  const statuses = createStatusFolder(join(directory, supervisorFolders.status), log, options.date);
  const desiredDirectory = join(directory, supervisorFolders.desired);
  const desired = createDesiredFolder(desiredDirectory, log);
  const ports = createPortRecord(join(directory, portsFile), options.random, log);
  const prefix = markPrefix(directory);
  const around: Surroundings = { ...options, directory, markPrefix: prefix, ports, statuses, poke };

  const left = statuses.readAll();
  for (const [name, { port }] of left) if (port !== null) ports.adopt(name, port);
  const processes = new Map<string, SupervisedProcess>();
  let timer: NodeJS.Timeout | null = null;
  let poked = false;
  let logsLookedAt = now();
  let stage = -1;
  let stageEndsAt = Number.POSITIVE_INFINITY;
  const { promise: ended, resolve: end } = Promise.withResolvers<boolean>();

  let watcher: FSWatcher | null = null;
  try {
    watcher = watch(desiredDirectory, poke);
    watcher.on("error", (error) => log("warn", "watch ended", { reason: describeError(error) }));
  } catch (error) {
    log("warn", "desired folder is polled only", { reason: describeError(error) });
  }
  log("info", "supervisor started", { directory, pid: own.pid });
  poke();

  function poke(): void {
    if (poked) return;
    poked = true;
    if (timer !== null) clearTimeout(timer);
    setImmediate(tick);
  }

  function tick(): void {
    poked = false;
    let finished = false;
    try {
      converge();
      finished = stage >= 0 && advanceStage();
    } catch (error) {
      log("error", "supervisor failed at a step", { reason: describeError(error) });
    }
    if (finished || poked) return;
    const due = Math.min(...processes.values().map((one) => one.wakeAt()), now() + pollMs);
    timer = setTimeout(tick, Math.max(1, due - now()));
  }

  function converge(): void {
    if (stage < 0 && !desired.read() && !existsSync(directory)) stop();
    for (const name of new Set([...desired.names(), ...left.keys()])) admit(name);
    let sightings: Sighting[] | null = null;
    const sightOnce = () => (sightings ??= sightProcesses(prefix));
    for (const [name, one] of processes) {
      try {
        convergeOne(name, one, sightOnce);
      } catch (error) {
        // One that fails must not keep the others from being looked after.
        log("error", "process failed at a step", { name, reason: describeError(error) });
      }
    }
    statuses.retry();
    ports.retry();
    if (now() - logsLookedAt >= logLookMs) boundLogs();
  }

  function convergeOne(name: string, one: SupervisedProcess, sightOnce: () => Sighting[]): void {
    one.look(sightOnce);
    const wanted = wantedOf(name);
    if (wanted !== "unknown") one.drive(wanted);
    if (wanted === null && stage < 0 && isDown(one)) forget(name);
  }

  function wantedOf(name: string): DesiredProcess | "unknown" | null {
    return stageOf(name) <= stage ? null : desired.find(name);
  }

  /** Begins with a name, unless its file cannot be understood: then whatever runs is left as it is. */
  function admit(name: string): void {
    const wanted = wantedOf(name);
    if (processes.has(name) || wanted === "unknown") return;
    const status = left.get(name) ?? null;
    left.delete(name);
    const alive = status?.process != null && isAlive(status.process);
    // At the end, a process is still stopped in the way that was asked for it.
    const known = desired.find(name);
    const asked = known === "unknown" ? null : known;
    const machine = recover(status, asked, { alive, bootId: own.bootId, now: now() });
    if (alive) log("info", "process adopted", { name, pid: status?.process?.pid });
    processes.set(name, createSupervisedProcess(around, name, machine));
  }

  /** Nothing of the name is left, its status neither: the next process of this name begins from nothing. */
  function forget(name: string): void {
    processes.get(name)?.retire();
    processes.delete(name);
    ports.forget(name);
    statuses.remove(name);
    log("info", "process removed", { name });
  }

  function boundLogs(): void {
    logsLookedAt = now();
    for (const name of processes.keys()) {
      boundLog(join(directory, supervisorFolders.logs, `${name}.log`), log);
    }
  }

  function stop(): void {
    if (stage >= 0) return;
    log("info", "supervisor stopping");
    enterStage(0);
  }

  function enterStage(next: number): void {
    stage = next;
    const graces = processes.values().map((one) => graceLeftMs(one.machine().phase, now()));
    stageEndsAt = now() + Math.max(0, ...graces) + unkillableMs;
    poke();
  }

  /** True when the last stage is over. */
  function advanceStage(): boolean {
    const alive = processes
      .entries()
      .filter(([name, one]) => stageOf(name) <= stage && !isDown(one));
    const names = alive.map(([name]) => name).toArray();
    if (names.length > 0 && now() < stageEndsAt) return false;
    if (names.length > 0) log("error", "processes would not die", { names });
    if (stage < lastStage) {
      enterStage(stage + 1);
      return false;
    }
    const strays = sightProcesses(prefix).filter((one) => one.name !== null);
    for (const { pid } of strays) sendSignal(pid, "SIGKILL");
    if (strays.length > 0 && now() < stageEndsAt) return false;
    watcher?.close();
    releaseFolder(directory, own);
    log("info", "supervisor stopped");
    end(names.length === 0 && strays.length === 0);
    return true;
  }

  return { stop, ended };
}

function graceLeftMs(phase: Phase, now: number): number {
  if (phase.kind === "stopping") return phase.killAt - now;
  return phase.kind === "down" ? 0 : phase.desired.stopGraceMs;
}

function isDown(one: SupervisedProcess): boolean {
  return one.machine().phase.kind === "down";
}
