/**
 * The nouns of the machine in `process-machine.ts`: what is known of one supervised process, what can be seen
 * of it, and what can be done to it.
 */
import type { ProcessRecord } from "../protocol/job-folder.ts";
import type { DesiredProcess, ProcessStatus } from "../protocol/supervisor-folder.ts";

export type Health = "starting" | "healthy" | "unhealthy";

export type Phase =
  /** `finished` is the revision that ended and shall not be restarted. */
  | { readonly kind: "down"; readonly finished: string | null }
  | { readonly kind: "launching"; readonly desired: DesiredProcess }
  | Running
  | Stopping
  | { readonly kind: "backoff"; readonly desired: DesiredProcess; readonly until: number };

export interface Running {
  readonly kind: "running";
  readonly desired: DesiredProcess;
  readonly process: ProcessRecord;
  readonly port: number | null;
  readonly startedAt: number;
  readonly health: Health;
  readonly healthyAt: number | null;
  /** Bad probes in a row, and what the last of them found. */
  readonly failures: number;
  readonly failure: string | null;
  /** When to probe next; null while a probe is under way. */
  readonly probeAt: number | null;
}

export interface Stopping {
  readonly kind: "stopping";
  /** Null for what an earlier supervisor left behind. */
  readonly desired: DesiredProcess | null;
  readonly process: ProcessRecord | null;
  readonly port: number | null;
  readonly shown: ProcessStatus["state"];
  readonly killAt: number;
  readonly afterwards: "backoff" | "down";
}

export interface Machine {
  readonly phase: Phase;
  /** Of the desired process last started; null before the first. */
  readonly revision: string | null;
  /** How often this revision was started again after a crash. */
  readonly restarts: number;
  /** Crashes in a row; what the backoff grows with. */
  readonly crashes: number;
  /** Why the last one ended. */
  readonly reason: string | null;
}

export type Observation =
  | { readonly kind: "launched"; readonly process: ProcessRecord; readonly port: number | null }
  | { readonly kind: "launch_failed"; readonly reason: string }
  | { readonly kind: "probed"; readonly process: ProcessRecord; readonly failure: string | null }
  | { readonly kind: "exited"; readonly process: ProcessRecord; readonly reason: string }
  | { readonly kind: "cleared" };

export type Effect =
  | { readonly kind: "launch"; readonly desired: DesiredProcess }
  | { readonly kind: "probe"; readonly running: Running }
  | { readonly kind: "ask"; readonly signal: "SIGTERM" | "SIGINT" }
  | { readonly kind: "kill" };

/** The monotonic clock in milliseconds, and a number from 0 to 1 that spreads restarts out. */
export interface Moment {
  readonly now: number;
  readonly jitter: number;
}
