/**
 * The thin shell around one process's machine: does what the machine decides, and tells it what came of it.
 *
 * Invariant: it decides nothing. Every wait here ends in an observation, so the machine is never left waiting.
 */
import { join } from "node:path";
import { describeError } from "../model/fault.ts";
import type { ProcessRecord } from "../protocol/job-folder.ts";
import { isAlive } from "../protocol/process-identity.ts";
import { type DesiredProcess, supervisorFolders } from "../protocol/supervisor-folder.ts";
import { probe } from "./health-probe.ts";
import type { Log } from "./log.ts";
import type { PortRecord } from "./port-record.ts";
import { environmentOf, launch } from "./process-launch.ts";
import { decide, observe, wakeAt } from "./process-machine.ts";
import {
  membersOf,
  type Sighting,
  sendSignal,
  sightProcesses,
  signalGroup,
} from "./process-mark.ts";
import type { Effect, Machine, Moment, Observation, Running } from "./process-state.ts";
import { statusOf } from "./process-status.ts";
import type { StatusFolder } from "./status-folder.ts";

/** How often a process that cannot be waited for is looked at, and one that is being stopped. */
const adoptedLookMs = 100;
const stoppingLookMs = 15;
const leftoversLookMs = 50;

/** What all processes of one folder have in common. */
export interface Surroundings {
  readonly directory: string;
  readonly path: string;
  readonly markPrefix: string;
  readonly ports: PortRecord;
  readonly statuses: StatusFolder;
  readonly log: Log;
  readonly now: () => number;
  readonly random: () => number;
  /** Asks for `look` and `drive` soon. */
  readonly poke: () => void;
}

export interface SupervisedProcess {
  /** Tells the machine what can only be seen by looking: that an adopted process, or all of a process, is gone. */
  look(sightings: () => readonly Sighting[]): void;
  /** Brings the process nearer to what is desired. */
  drive(desired: DesiredProcess | null): void;
  /** When to look and drive again though nothing happened. */
  wakeAt(): number;
  machine(): Machine;
  /** From now on nothing that is still under way, such as a late exit, is taken in or written. */
  retire(): void;
}

/** The shell around this machine. */
export function createSupervisedProcess(
  around: Surroundings,
  name: string,
  recovered: Machine,
): SupervisedProcess {
  let machine = recovered;
  let seen: ProcessRecord | null = processOf(machine);
  /** The process whose exit this supervisor is told of; one that it adopted is not among them. */
  let waitedFor: ProcessRecord | null = null;
  let leftoversAsked = false;
  let retired = false;

  const moment = (): Moment => ({ now: around.now(), jitter: around.random() });
  const mark = `${around.markPrefix}${name}`;

  function report(observation: Observation): void {
    if (retired) return;
    machine = observe(machine, observation, moment());
    publish();
    around.poke();
  }

  function publish(): void {
    const status = statusOf(machine);
    if (status !== null) around.statuses.write(name, status);
  }

  function look(sightings: () => readonly Sighting[]): void {
    lookForExit();
    const { phase } = machine;
    if (phase.kind !== "stopping" || (phase.process !== null && isAlive(phase.process))) return;
    const leftovers = membersOf(sightings(), name, seen);
    if (leftovers.length === 0) {
      seen = null;
      leftoversAsked = false;
      machine = observe(machine, { kind: "cleared" }, moment());
    } else if (!leftoversAsked && phase.desired !== null) {
      // Children in a session of their own did not get the signal that their parent got.
      leftoversAsked = true;
      for (const pid of leftovers) sendSignal(pid, phase.desired.stopSignal);
    }
  }

  function lookForExit(): void {
    const { phase } = machine;
    if (phase.kind !== "running" || phase.process === waitedFor || isAlive(phase.process)) return;
    const reason = "Ended; an earlier supervisor started it, so its exit code is not known.";
    machine = observe(machine, { kind: "exited", process: phase.process, reason }, moment());
  }

  function drive(desired: DesiredProcess | null): void {
    const at = moment();
    let effect: Effect | null;
    do {
      ({ machine, effect } = decide(machine, desired, at));
      publish();
      if (effect !== null) act(effect);
    } while (effect !== null);
  }

  function act(effect: Effect): void {
    switch (effect.kind) {
      case "launch":
        void start(effect.desired);
        return;
      case "probe":
        void probeOnce(effect.running);
        return;
      case "ask":
        if (seen !== null) signalGroup(seen, effect.signal);
        return;
      case "kill":
        if (seen !== null) signalGroup(seen, "SIGKILL");
        for (const pid of membersOf(sightProcesses(around.markPrefix), name, seen)) {
          sendSignal(pid, "SIGKILL");
        }
    }
  }

  async function start(desired: DesiredProcess): Promise<void> {
    try {
      const port = desired.port === 0 ? await around.ports.keep(name) : desired.port;
      const environment = environmentOf(desired, { path: around.path, port, mark });
      const logFile = join(around.directory, supervisorFolders.logs, `${name}.log`);
      const launched = await launch(desired, environment, logFile);
      if (launched.process === null) {
        report({ kind: "launch_failed", reason: launched.reason });
        return;
      }
      const { process, ended } = launched;
      seen = process;
      waitedFor = process;
      report({ kind: "launched", process, port });
      report({ kind: "exited", process, reason: await ended });
    } catch (error) {
      report({ kind: "launch_failed", reason: `Could not be started: ${describeError(error)}` });
    }
  }

  async function probeOnce({ desired, process, port }: Running): Promise<void> {
    if (desired.health === null) return;
    const environment = environmentOf(desired, { path: around.path, port, mark });
    const target = { port, directory: desired.directory, environment };
    report({ kind: "probed", process, failure: await probe(desired.health, target) });
  }

  function nextWake(): number {
    const { phase } = machine;
    const due = wakeAt(machine) ?? Number.POSITIVE_INFINITY;
    if (phase.kind === "stopping") {
      return Math.min(due, around.now() + (leftoversAsked ? leftoversLookMs : stoppingLookMs));
    }
    const adopted = phase.kind === "running" && phase.process !== waitedFor;
    return adopted ? Math.min(due, around.now() + adoptedLookMs) : due;
  }

  function retire(): void {
    retired = true;
  }

  return { look, drive, wakeAt: nextWake, machine: () => machine, retire };
}

function processOf({ phase }: Machine): ProcessRecord | null {
  return phase.kind === "running" ? phase.process : null;
}
