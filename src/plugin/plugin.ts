/**
 * What a component type must provide, seen by its author.
 *
 * A plugin is a data sheet and one function per operation. It knows no executor, no server and no
 * store: it gets a request, reports through its context, and returns or throws. What it promises is in
 * `plugin-conformance.ts`: a plan changes nothing, apply and destroy may be repeated without harm.
 */
import type { OutcomeCode } from "../model/job.ts";
import type { Json } from "../model/json.ts";
import type { PluginRequest } from "../protocol/plugin-request.ts";

export type PluginOperation = PluginRequest["operation"];

/** What a component type is, as data. */
export interface DataSheet {
  readonly name: string;
  /** Capabilities that the sandbox must have. */
  readonly needs: readonly string[];
  readonly operations: readonly PluginOperation[];
}

export interface PlannedChange {
  readonly plan: Json;
  /** What a person sees; the executor redacts it. */
  readonly diff: string;
  readonly changes: boolean;
}

export interface PluginContext {
  readonly request: PluginRequest;
  /** Aborted when the job is cancelled or out of time. */
  readonly signal: AbortSignal;
  /** The PATH on which programs are looked for. */
  readonly searchPath: string;
  log(line: string): void;
  reportProgress(label: string, done: number, total: number | null, unit?: "bytes" | "steps"): void;
  giveOutput(name: string, value: Json, options?: { sensitive: boolean }): void;
  saveState(state: Json): void;
  givePlan(change: PlannedChange): void;
}

export interface Plugin {
  readonly sheet: DataSheet;
  readonly operations: {
    readonly [Name in PluginOperation]?: (context: PluginContext) => Promise<void>;
  };
}

/** Thrown by a plugin whose operation failed: it becomes the outcome, with this code. */
export class OperationFailure extends Error {
  override readonly name = "OperationFailure";
  readonly code: OutcomeCode;

  constructor(message: string, code: OutcomeCode = "operation_failed", cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
  }
}

/** Thrown to end the process without an outcome, as a crash would; for showing what happens then. */
export class PluginCrash extends Error {
  override readonly name = "PluginCrash";
  readonly exitCode: number;

  constructor(exitCode: number) {
    super(`The plugin ends with exit code ${exitCode}.`);
    this.exitCode = exitCode;
  }
}
