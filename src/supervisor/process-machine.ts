/**
 * What is to be done about one supervised process: the whole decision, with no I/O in it.
 *
 *                launch
 *   down -----------------> launching ----------> running: starting -> healthy <-> unhealthy
 *    ^ ^                     ^     |                 |
 *    | |      time is up, or |     | cannot be       | exited | removed | new revision | unhealthy
 *    | |        new revision |     | started         v
 *    | +-- removed ------ backoff  +----------> stopping: asked, after `stopGraceMs` killed;
 *    |                       ^                    |  |    what a crash left behind is killed at once
 *    |                       +- cleared: crashed -+  |
 *    +----- cleared: ended as asked, or not to be restarted
 *
 *   unhealthy = `threshold` bad probes in a row; only a process that is never restarted may recover from it
 *   shown in status/:  down = stopped · launching = starting · stopping = what it was before
 *
 * `observe` takes in what happened, `decide` says what to do now. The shell (`supervised-process.ts`) does what `decide`
 * says, reports what came of it, and asks again at `wakeAt`.
 *
 * Invariant: `launch` is asked only of a name of which nothing is alive. A process that was started leaves
 * the machine by `cleared` alone, which the shell reports when it has looked and found nothing of it.
 */
import type { ProcessRecord } from "../protocol/job-folder.ts";
import { type DesiredProcess, stoppedAsAsked } from "../protocol/supervisor-folder.ts";
import type {
  Effect,
  Health,
  Machine,
  Moment,
  Observation,
  Phase,
  Running,
  Stopping,
} from "./process-state.ts";

export const backoffFirstMs = 100;
export const backoffMaxMs = 30_000;
/** So long healthy, a process counts as sound: its next crash begins the backoff anew. */
export const stableMs = 60_000;
/** Without a health check: so long alive, a process counts as healthy. */
export const aliveMs = 100;
/** So long a process may take until its first good probe. */
export const startMsMax = 30_000;
/** Between probes before the first good one: quick at first, then sparing. */
export const fastProbeMs = 25;
const fastProbeForMs = 5000;
const slowStartProbeMs = 250;
/** Between two attempts to kill what did not go. */
export const killAgainMs = 500;

/** A machine of which nothing is known to run. */
export function createMachine(): Machine {
  const phase: Phase = { kind: "down", finished: null };
  return { phase, revision: null, restarts: 0, crashes: 0, reason: null };
}

/** Takes in what happened; what no longer concerns the present process changes nothing. */
export function observe(machine: Machine, seen: Observation, at: Moment): Machine {
  const { phase } = machine;
  switch (seen.kind) {
    case "launched":
      return phase.kind === "launching" ? run(machine, phase.desired, seen, at.now) : machine;
    case "launch_failed":
      return phase.kind === "launching"
        ? takeLaunchFailure(machine, phase.desired, seen, at.now)
        : machine;
    case "probed":
      return phase.kind === "running" && isSame(phase.process, seen.process)
        ? takeProbe(machine, phase, seen.failure, at.now)
        : machine;
    case "exited":
      return phase.kind === "running" && isSame(phase.process, seen.process)
        ? takeExit(machine, phase, seen.reason, at.now)
        : machine;
    case "cleared":
      return phase.kind === "stopping" ? takeClearance(machine, phase, at) : machine;
  }
}

/** What to do now, `desired` being what shall run: null when nothing shall. */
export function decide(
  machine: Machine,
  desired: DesiredProcess | null,
  at: Moment,
): { machine: Machine; effect: Effect | null } {
  const { phase } = machine;
  switch (phase.kind) {
    case "down":
      if (desired === null) {
        return { machine: { ...machine, phase: { ...phase, finished: null } }, effect: null };
      }
      return phase.finished === desired.revision ? idle(machine) : launch(machine, desired);
    case "launching":
      return idle(machine);
    case "running":
      return decideRunning(machine, phase, desired, at);
    case "stopping": {
      const afterwards = phase.desired?.revision === desired?.revision ? phase.afterwards : "down";
      const killAt = at.now >= phase.killAt ? at.now + killAgainMs : phase.killAt;
      return {
        machine: { ...machine, phase: { ...phase, afterwards, killAt } },
        effect: killAt === phase.killAt ? null : { kind: "kill" },
      };
    }
    case "backoff":
      if (desired === null) {
        return idle({ ...machine, phase: { kind: "down", finished: null } });
      }
      if (desired.revision !== phase.desired.revision) return launch(machine, desired);
      return at.now < phase.until
        ? idle(machine)
        : launch({ ...machine, restarts: machine.restarts + 1 }, desired);
  }
}

/** When to decide again though nothing happened; null when only an observation can change anything. */
export function wakeAt({ phase }: Machine): number | null {
  switch (phase.kind) {
    case "running":
      return phase.probeAt;
    case "stopping":
      return phase.killAt;
    case "backoff":
      return phase.until;
    default:
      return null;
  }
}

/** How long to wait after the `crashes`th crash in a row: doubled each time, halved at most by jitter. */
export function backoffMs(crashes: number, jitter: number): number {
  const full = Math.min(backoffMaxMs, backoffFirstMs * 2 ** Math.max(0, crashes - 1));
  return full * (0.5 + jitter / 2);
}

function decideRunning(
  machine: Machine,
  phase: Running,
  desired: DesiredProcess | null,
  { now }: Moment,
): { machine: Machine; effect: Effect | null } {
  if (desired?.revision !== phase.desired.revision) return stop(machine, phase, "down", now);
  if (phase.health === "unhealthy" && phase.desired.restart === "always") {
    const crashes = crashesAfter(machine, phase, now);
    const reason = `Stopped since it was unhealthy: ${phase.failure}`;
    return stop({ ...machine, crashes, reason }, phase, "backoff", now);
  }
  if (phase.probeAt === null || now < phase.probeAt) return idle(machine);
  const probing: Running = { ...phase, probeAt: null };
  if (phase.desired.health !== null) {
    return {
      machine: { ...machine, phase: probing },
      effect: { kind: "probe", running: probing },
    };
  }
  return idle({ ...machine, phase: { ...probing, health: "healthy", healthyAt: now } });
}

function launch(machine: Machine, desired: DesiredProcess): { machine: Machine; effect: Effect } {
  const { revision } = desired;
  const kept = machine.revision === revision ? machine : createMachine();
  const reason = kept.reason === stoppedAsAsked ? null : kept.reason;
  return {
    machine: { ...kept, revision, reason, phase: { kind: "launching", desired } },
    effect: { kind: "launch", desired },
  };
}

function run(
  machine: Machine,
  desired: DesiredProcess,
  { process, port }: { process: ProcessRecord; port: number | null },
  now: number,
): Machine {
  const phase: Running = {
    kind: "running",
    desired,
    process,
    port,
    startedAt: now,
    health: "starting",
    healthyAt: null,
    failures: 0,
    failure: null,
    probeAt: desired.health === null ? now + aliveMs : now,
  };
  return { ...machine, phase };
}

function takeProbe(machine: Machine, phase: Running, failure: string | null, now: number): Machine {
  const check = phase.desired.health;
  if (check === null) return machine;
  if (failure === null) {
    const healthyAt = phase.health === "healthy" ? phase.healthyAt : now;
    const probeAt = now + check.intervalMs;
    const sound = { health: "healthy", healthyAt, failures: 0, failure, probeAt } as const;
    return { ...machine, phase: { ...phase, ...sound } };
  }
  const failures = phase.failures + 1;
  const startingMs = now - phase.startedAt;
  // Before the first good probe only time counts: quick probes would use the threshold up at once.
  const ill =
    phase.health === "starting"
      ? startingMs >= Math.max(startMsMax, check.intervalMs * check.threshold)
      : failures >= check.threshold;
  const pauseMs = phase.health === "starting" ? startPauseMs(startingMs) : check.intervalMs;
  const probeAt = now + Math.min(pauseMs, check.intervalMs);
  const health: Health = ill ? "unhealthy" : phase.health;
  return { ...machine, phase: { ...phase, health, failures, failure, probeAt } };
}

function startPauseMs(startingMs: number): number {
  return startingMs < fastProbeForMs ? fastProbeMs : slowStartProbeMs;
}

function takeExit(machine: Machine, phase: Running, reason: string, now: number): Machine {
  const crashes = crashesAfter(machine, phase, now);
  return crash({ ...machine, reason, crashes }, phase.desired, phase.port, now);
}

/** Cleared like any other: a program that ended before it could be recorded may have left children. */
function takeLaunchFailure(
  machine: Machine,
  desired: DesiredProcess,
  { reason }: { reason: string },
  now: number,
): Machine {
  return crash({ ...machine, reason, crashes: machine.crashes + 1 }, desired, null, now);
}

/** What is left behind has no master any more: it is killed at once. */
function crash(
  machine: Machine,
  desired: DesiredProcess,
  port: number | null,
  now: number,
): Machine {
  const left: Stopping = {
    kind: "stopping",
    desired,
    process: null,
    port,
    shown: desired.restart === "always" ? "backoff" : "starting",
    killAt: now,
    afterwards: "backoff",
  };
  return { ...machine, phase: left };
}

function takeClearance(machine: Machine, phase: Stopping, at: Moment): Machine {
  if (phase.afterwards === "down" || phase.desired === null) {
    return { ...machine, phase: { kind: "down", finished: null } };
  }
  if (phase.desired.restart === "never") {
    return { ...machine, phase: { kind: "down", finished: phase.desired.revision } };
  }
  const until = at.now + backoffMs(machine.crashes, at.jitter);
  return { ...machine, phase: { kind: "backoff", desired: phase.desired, until } };
}

function stop(
  machine: Machine,
  phase: Running,
  afterwards: Stopping["afterwards"],
  now: number,
): { machine: Machine; effect: Effect } {
  const { desired, process, port, health } = phase;
  const killAt = now + desired.stopGraceMs;
  return {
    machine: {
      ...machine,
      reason: afterwards === "down" ? stoppedAsAsked : machine.reason,
      phase: { kind: "stopping", desired, process, port, shown: health, killAt, afterwards },
    },
    effect: { kind: "ask", signal: desired.stopSignal },
  };
}

function crashesAfter(machine: Machine, phase: Running, now: number): number {
  const sound = phase.healthyAt !== null && now - phase.healthyAt >= stableMs;
  return sound ? 1 : machine.crashes + 1;
}

function isSame(one: ProcessRecord, other: ProcessRecord): boolean {
  return one.pid === other.pid && one.startTime === other.startTime && one.bootId === other.bootId;
}

function idle(machine: Machine): { machine: Machine; effect: null } {
  return { machine, effect: null };
}
