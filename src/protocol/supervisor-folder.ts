/**
 * How anything is asked of the supervisor: by files in its folder, so that its record is what it was
 * asked, and nothing is lost whoever dies.
 *
 *   desired/<name>.json   what shall run (`DesiredProcess`); written by rename; removed = stop it
 *   status/<name>.json    what does run (`ProcessStatus`); written by the supervisor, by rename
 *   programs/<digest>/    unpacked artifacts, read only
 *   logs/<name>.log       the process's own output, bounded
 *   supervisor.json       the supervisor's own pid, start time, boot id
 *
 * Names that begin with `@` are the sandbox's own programs (`@registry`, `@agent`); all others are components.
 */
import { z } from "zod";
import { ProcessRecord } from "./job-folder.ts";

export const supervisorFolders = {
  desired: "desired",
  status: "status",
  programs: "programs",
  logs: "logs",
} as const;
export const supervisorRecordFile = "supervisor.json";

export const HealthCheck = z.object({
  /** Exactly one of the three; a path for http, true for tcp, a command line for command. */
  http: z.string().exactOptional(),
  tcp: z.literal(true).exactOptional(),
  command: z.array(z.string()).exactOptional(),
  intervalMs: z.int().min(10),
  timeoutMs: z.int().min(10),
  /** Failures in a row until the process counts as unhealthy and is restarted. */
  threshold: z.int().min(1),
});
export type HealthCheck = z.output<typeof HealthCheck>;

export const DesiredProcess = z.object({
  version: z.literal(1),
  /** Differs whenever anything here differs; a status with the same revision speaks of this. */
  revision: z.string(),
  command: z.array(z.string()).min(1),
  directory: z.string(),
  /** The whole environment: nothing is inherited but PATH, where it is not given. */
  environment: z.record(z.string(), z.string()),
  /** The port to give it as PORT; 0 = the supervisor picks a free one and keeps it; null = none. */
  port: z.int().min(0).max(65535).nullable(),
  health: HealthCheck.nullable(),
  restart: z.enum(["always", "never"]),
  /** How it is asked to stop, and how long until it is killed. */
  stopSignal: z.enum(["SIGTERM", "SIGINT"]),
  stopGraceMs: z.int().min(0),
});
export type DesiredProcess = z.output<typeof DesiredProcess>;

/** The `reason` of what was stopped together with its supervisor: the next one starts it again. */
export const stoppedAsAsked = "Stopped as asked.";

export const ProcessStatus = z.object({
  version: z.literal(1),
  /** Of the desired process that this speaks of. */
  revision: z.string(),
  state: z.enum(["starting", "healthy", "unhealthy", "backoff", "stopped"]),
  process: ProcessRecord.nullable(),
  port: z.int().nullable(),
  restarts: z.int().min(0),
  /** Why the last one ended, or what the health check said; the last lines of its output are in logs/. */
  reason: z.string().nullable(),
  since: z.string(),
});
export type ProcessStatus = z.output<typeof ProcessStatus>;
