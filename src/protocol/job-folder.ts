/**
 * The job's folder: all that agent and executor ever say to each other, as files that survive both.
 *
 *   manifest.jws      the signed manifest                          written by the agent, before the start
 *   grant.jws         the signed lease grant                       "
 *   keys.json         the public keys that verify them             "
 *   place.json        where things are here (`Place`)              "
 *   credentials.json  short-lived tokens, renewed in place         by the agent, replaced by rename
 *   events.ndjson     numbered events, the outcome last, flushed   by the executor; then events.2.ndjson, …
 *   ballast           room for the outcome on a full disk          by the executor
 *   heartbeat         touched every few seconds: a sign of life    by the executor
 *   process.json      pid, start time, boot id of the executor     by the launcher (shim), at the start
 *   exit.json         { "exitCode": n }                            by the launcher (shim), at the end
 *   stderr.log        what the executor itself printed (bounded)   by the executor's process
 *   work/             the executor's scratch folder
 *
 * The folder is named `<jobId>.<generation>.<n>`. No pipe connects agent and executor.
 */
import { z } from "zod";
import type { JobId } from "../model/ids.ts";
import { type Epoch, formatEpoch } from "../model/job.ts";

export const jobFiles = {
  manifest: "manifest.jws",
  grant: "grant.jws",
  keys: "keys.json",
  place: "place.json",
  credentials: "credentials.json",
  events: "events.ndjson",
  ballast: "ballast",
  heartbeat: "heartbeat",
  process: "process.json",
  exit: "exit.json",
  stderr: "stderr.log",
  work: "work",
} as const;

/** The file of a segment of events; they count from 1. A segment is closed once the next one exists. */
export function eventsFileOf(segment: number): string {
  return segment === 1 ? jobFiles.events : jobFiles.events.replace(".", `.${segment}.`);
}

/** Which segment of events a file is, or null when it is none. */
export function segmentOf(file: string): number | null {
  if (file === jobFiles.events) return 1;
  const [, digits] = file.match(/^events\.([1-9]\d{0,8})\.ndjson$/) ?? [];
  const segment = Number(digits ?? 0);
  return segment > 1 ? segment : null;
}

/** The folder's name, which names the executor's container too. */
export function jobFolderName(jobId: JobId, epoch: Epoch): string {
  return `${jobId}.${formatEpoch(epoch)}`;
}

/** Public keys by id, as in a keyset. */
export const JobKeys = z.record(z.string(), z.string());

/**
 * Where things are in this place, told by the agent's own configuration and not by the server.
 * A folder that an operation has no business with is null for it.
 */
export const Place = z.object({
  /** The install's store; null for builds. */
  storeDirectory: z.string().nullable(),
  /** The install's own registry, with credentials that only the install holds; null for builds. */
  registry: z.object({ url: z.string(), username: z.string(), password: z.string() }).nullable(),
  /** The supervisor's folder (desired/, status/, programs/); null where there is no supervisor. */
  supervisorDirectory: z.string().nullable(),
  /** provision and destroy of a local sandbox: the folder that holds one folder per install. */
  installsDirectory: z.string().nullable(),
  /** Command lines of the programs that a local sandbox consists of. */
  programs: z
    .object({
      agent: z.array(z.string()),
      registry: z.array(z.string()),
      executor: z.array(z.string()),
    })
    .nullable(),
});
export type Place = z.output<typeof Place>;

/** Secrets of one job, minutes long. Never in a manifest, never in the database. */
export const JobCredentials = z.object({
  /** build (push, and the source) and sync (pull): a bearer token for one repository. */
  vendorRegistry: z.object({ url: z.string(), token: z.string() }).nullable(),
  /** build: where the source is, readable with the same token. */
  sourceUrl: z.string().nullable(),
  /** provision: what the new agent trades for its identity. */
  enrolment: z.object({ serverUrl: z.string(), code: z.string() }).nullable(),
});
export type JobCredentials = z.output<typeof JobCredentials>;

/** Guards against a pid that was reused: by another process (start time) or after a restart (boot id). */
export const ProcessRecord = z.object({
  pid: z.int().min(1),
  startTime: z.string(),
  bootId: z.string(),
});
export type ProcessRecord = z.output<typeof ProcessRecord>;

export const ExitRecord = z.object({ exitCode: z.int() });
