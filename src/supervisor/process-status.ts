/**
 * The two ways between a machine and its status file: what the file says of the machine, and with what
 * machine a new supervisor begins, given the file that an earlier one left.
 *
 * Invariant: a process is adopted only when it is the very one recorded (pid, start time, boot id) and its
 * revision is the desired one. Everything else is cleared away before anything is started in its place.
 */
import type { ProcessRecord } from "../protocol/job-folder.ts";
import {
  type DesiredProcess,
  type ProcessStatus,
  stoppedAsAsked,
} from "../protocol/supervisor-folder.ts";
import { createMachine } from "./process-machine.ts";
import type { Machine, Running } from "./process-state.ts";

/** For a process that is to be stopped though what was once asked of it is not known any more. */
const unknownStopGraceMs = 5000;

/** What status/ says of this machine, but for the time; null before anything was started. */
export function statusOf(machine: Machine): Omit<ProcessStatus, "since"> | null {
  const { phase, revision, restarts, reason } = machine;
  if (revision === null) return null;
  const said = { version: 1, revision, restarts, reason } as const;
  switch (phase.kind) {
    case "down":
      return { ...said, state: "stopped", process: null, port: null };
    case "launching":
      return { ...said, state: "starting", process: null, port: null };
    case "running": {
      const { health: state, process, port } = phase;
      return { ...said, state, process, port, reason: phase.failure ?? reason };
    }
    case "stopping":
      return { ...said, state: phase.shown, process: phase.process, port: phase.port };
    case "backoff":
      return { ...said, state: "backoff", process: null, port: null };
  }
}

/** The machine to begin with: `status` is what an earlier supervisor wrote, `alive` whether its process is. */
export function recover(
  status: ProcessStatus | null,
  desired: DesiredProcess | null,
  { alive, bootId, now }: { alive: boolean; bootId: string; now: number },
): Machine {
  if (status === null) return clearing(createMachine(), null, now);
  const { revision, restarts, reason } = status;
  const known: Machine = { ...createMachine(), revision, restarts, reason };
  if (alive && status.process !== null) {
    return { ...known, phase: adopted(status, status.process, desired, now) };
  }
  if (desired?.revision !== revision) return clearing(known, null, now);
  if (status.process !== null && status.process.bootId === bootId) {
    const ended = "Ended while no supervisor was running.";
    return clearing({ ...known, reason: ended, crashes: 1 }, desired, now);
  }
  const finished = status.state === "stopped" && reason !== stoppedAsAsked;
  if (finished && desired.restart === "never") {
    return { ...known, phase: { kind: "down", finished: revision } };
  }
  return clearing(status.state === "stopped" ? { ...known, restarts: 0 } : known, null, now);
}

/** Kills what may be left of a process; then `crashed` goes its ordinary way, and nothing else is waited for. */
function clearing(machine: Machine, crashed: DesiredProcess | null, now: number): Machine {
  return {
    ...machine,
    phase: {
      kind: "stopping",
      desired: crashed,
      process: null,
      port: null,
      shown: crashed === null ? "stopped" : "backoff",
      killAt: now,
      afterwards: crashed === null ? "down" : "backoff",
    },
  };
}

function adopted(
  status: ProcessStatus,
  process: ProcessRecord,
  desired: DesiredProcess | null,
  now: number,
): Running {
  const healthy = status.state === "healthy";
  return {
    kind: "running",
    desired: desired?.revision === status.revision ? desired : unknownDesired(status, desired),
    process,
    port: status.port,
    startedAt: now,
    health: healthy ? "healthy" : "starting",
    healthyAt: healthy ? now : null,
    failures: 0,
    failure: null,
    probeAt: healthy && desired?.health === null ? null : now,
  };
}

/** Stands for what an adopted process of another revision was asked to be: enough to stop it. */
function unknownDesired(status: ProcessStatus, desired: DesiredProcess | null): DesiredProcess {
  return {
    version: 1,
    revision: status.revision,
    command: ["unknown"],
    directory: "/",
    environment: {},
    port: null,
    health: null,
    restart: "always",
    stopSignal: desired?.stopSignal ?? "SIGTERM",
    stopGraceMs: desired?.stopGraceMs ?? unknownStopGraceMs,
  };
}
