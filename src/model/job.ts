/**
 * A job: one operation on one component (or on an install's sandbox), described by a manifest, run
 * by one executor at a time, ended by one outcome.
 *
 * The machine that moves `state` is drawn in `server/job-machine.ts`, the only file that changes it.
 */
import type { Digest, JsonObject } from "./json.ts";

export const operations = ["provision", "build", "sync", "plan", "apply", "destroy"] as const;
export type Operation = (typeof operations)[number];

export const jobStates = [
  "queued",
  "offered",
  "running",
  "unreachable",
  "succeeded",
  "failed",
  "cancelled",
] as const;
export type JobState = (typeof jobStates)[number];

/**
 * Which try of a job this is. `generation` rises when an agent is replaced or the server restored,
 * `n` with every offer; they compare in that order.
 */
export interface Epoch {
  readonly generation: number;
  readonly n: number;
}

/** Negative when `a` is older than `b`, 0 when they are the same. */
export function compareEpochs(a: Epoch, b: Epoch): number {
  return a.generation - b.generation || a.n - b.n;
}

/** `2.5` for generation 2, try 5: names folders, containers and log chunks. */
export function formatEpoch(epoch: Epoch): string {
  return `${epoch.generation}.${epoch.n}`;
}

/** What a component gives to others. A sensitive value stays in the install: only its keyed hash is told. */
export type Output =
  | { readonly sensitive: false; readonly value: JsonObject[string] }
  | { readonly sensitive: true; readonly hash: string };

/** An artifact as the vendor's registry and the install's registry both know it. */
export interface ArtifactReference {
  readonly repository: string;
  readonly digest: Digest;
  readonly sizeBytes: number;
}

/** What a plan job made: the plan stays in the install, people see the sanitised diff. */
export interface PlanReference {
  readonly planDigest: Digest;
  readonly diffDigest: Digest;
  readonly baseDigest: Digest;
  /** The digest of the three above: what an approval names. */
  readonly approvalDigest: Digest;
  readonly changes: boolean;
  readonly diff: string;
}

/** How an operation ended. `code` is from a small, guarded list that people may write rules against. */
export interface Outcome {
  readonly status: "succeeded" | "failed" | "cancelled";
  readonly code?: OutcomeCode;
  readonly message?: string;
  /** build: what was made. */
  readonly artifact?: ArtifactReference;
  /** sync: what was copied, and what moved. */
  readonly copied?: readonly {
    readonly repository: string;
    readonly digest: Digest;
    readonly bytes: number;
  }[];
  readonly bytesCopied?: number;
  /** plan. */
  readonly plan?: PlanReference;
  /** apply, provision: what others may refer to, and one keyed hash over all of it. */
  readonly outputs?: { readonly [name: string]: Output };
  readonly outputsHash?: string;
  /** Keys in the install's store under which values of an older epoch were kept aside: a person must look. */
  readonly conflicts?: readonly string[];
}

export const outcomeCodes = [
  "operation_failed", // the plugin said so
  "plugin_crashed", // the plugin ended without an outcome
  "bad_artifact", // bytes that do not match their digest, or an artifact that cannot be read
  "render_failed", // a template names a value that is not there
  "stale_plan", // what the plan was made against has changed since
  "stale_values", // an output that the manifest counts on has changed since
  "fenced", // a newer epoch of this component has written meanwhile
  "not_started", // its limit to start was over before an agent could begin it
  "timed_out", // its limit to finish was over
  "silent", // its executor gave no sign of life for longer than its limit
  "unavailable", // something that it needs could not be reached; it may pass by itself
  "lost", // the executor vanished without an outcome, more often than the manifest allows
  "missing_tool", // a program that the plugin needs is not on this machine
  "cancelled",
] as const;
export type OutcomeCode = (typeof outcomeCodes)[number];

/** How long a job may take, in three respects; each that is passed has its own outcome. */
export interface JobLimits {
  /** From its making until an executor runs; null: for ever. Time in a pause does not count. */
  readonly startSeconds: number | null;
  /** Of one executor. */
  readonly finishSeconds: number;
  /** Without a sign of life of the executor, whatever its plugin prints. */
  readonly silenceSeconds: number;
}

/** When a job is tried again by itself, as its next epoch. Executors that vanished count as attempts too. */
export interface RetryPolicy {
  readonly attempts: number;
  /** Failures of these kinds are worth another attempt. */
  readonly on: readonly OutcomeCode[];
  /** Before the second attempt; it doubles from there, up to the cap. */
  readonly backoffSeconds: number;
  readonly backoffSecondsMax: number;
}

export const finishedStates = ["succeeded", "failed", "cancelled"] as const;

/** True once a job can never change again. */
export function isFinished(state: JobState): boolean {
  return (finishedStates as readonly JobState[]).includes(state);
}
