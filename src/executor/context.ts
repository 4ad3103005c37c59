/** What every operation gets: the job's documents, and the ways out of the executor. */
import type { Outcome } from "../model/job.ts";
import { OperationFailure } from "../plugin/plugin.ts";
import type { JobCredentials } from "../protocol/job-folder.ts";
import type { PluginRequest } from "../protocol/plugin-request.ts";
import type { Fence } from "../store/store.ts";
import type { EventLog } from "./event-log.ts";
import type { JobDocuments } from "./job-files.ts";
import type { PluginResult } from "./plugin-process.ts";
import type { Redactor } from "./redaction.ts";

export interface ExecutorContext extends JobDocuments {
  readonly log: EventLog;
  readonly redactor: Redactor;
  /** The job's scratch folder; it goes when the job ends. */
  readonly workDirectory: string;
  /** Aborted when the job is cancelled or out of time. */
  readonly signal: AbortSignal;
  /** Where the store keeps what older tries wanted to write: told with the outcome, so that people look. */
  readonly conflicts: Set<string>;
  readonly random: (size: number) => Uint8Array;
  /** As they are now; whatever secret they hold is redacted from then on. */
  readCredentials(): Promise<JobCredentials>;
  runPlugin(request: PluginRequest): Promise<PluginResult>;
}

/** One operation of a job: it returns its outcome, or throws. */
export type Operate = (context: ExecutorContext) => Promise<Outcome>;

/** The part of a manifest or place that an operation cannot do without. */
export function requirePart<T>(part: T | null, name: string): T {
  if (part === null)
    throw new OperationFailure(`Expected \`${name}\` for this operation, got none.`);
  return part;
}

/** The fence of this try, under the component's name. */
export function fenceOf({ manifest, grant }: ExecutorContext): Fence {
  const component = requirePart(manifest.component, "component").name;
  return { component, jobId: manifest.jobId, epoch: grant.epoch };
}

/** A request with everything that is the same for all operations; the rest is null unless given. */
export function requestFor(
  { manifest, grant, place, workDirectory }: ExecutorContext,
  operation: PluginRequest["operation"],
  component: PluginRequest["component"],
  given: Partial<PluginRequest>,
): PluginRequest {
  return {
    version: 1,
    operation,
    job: { id: manifest.jobId, epoch: grant.epoch },
    install: manifest.install,
    component,
    sourceDirectory: null,
    outputDirectory: null,
    artifactDirectory: null,
    artifactDigest: manifest.artifact?.digest ?? null,
    state: null,
    plan: null,
    workDirectory,
    supervisorDirectory: place.supervisorDirectory,
    stateBackend: null,
    sandbox: null,
    ...given,
  };
}

/** The plugin's failure as the operation's; nothing when it succeeded. */
export function requireSuccess({ outcome }: PluginResult): void {
  if (outcome.status === "succeeded") return;
  throw new OperationFailure(
    outcome.message ?? "The plugin failed and did not say why.",
    outcome.code ?? "operation_failed",
  );
}
