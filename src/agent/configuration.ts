/**
 * The agent's configuration: a JSON file that whoever set up the place wrote, never the server.
 */
import { z } from "zod";
import { Fault } from "../model/fault.ts";
import { Place } from "../protocol/job-folder.ts";
import { readText } from "./foreign-file.ts";
import { spoolBytesMaxDefault } from "./spool.ts";

const configurationBytesMax = 1024 * 1024;

export const AgentConfiguration = z.object({
  serverUrl: z.url({ protocol: /^https?$/ }),
  /** The agent's own folder: identity.json, journal.db, jobs/. */
  directory: z.string().min(1),
  /** Holds `{serverUrl, code}`; read at the start and when the server refuses this agent, deleted after use. */
  enrolmentFile: z.string().min(1).exactOptional(),
  /** The proxy on the way to the server, as `http://user:password@host:port`; wins over the environment. */
  proxy: z.url({ protocol: /^https?$/ }).exactOptional(),
  /** What is reached without it: names, addresses and networks, with commas between; `*` for all. */
  noProxy: z.string().exactOptional(),
  /** Certificates (PEM) of private authorities, trusted besides the system's. */
  caFile: z.string().min(1).exactOptional(),
  /** Copied into every job's place.json. */
  place: Place,
  /** The executor's command line; the job's folder is appended. */
  executor: z.array(z.string()).min(1),
  /** How many jobs run at once. */
  slots: z.int().min(1).max(1000).default(8),
  /** What lines and outcomes may take on the disk while the server is away, over all jobs. */
  spoolBytesMax: z
    .int()
    .min(1024 * 1024)
    .default(spoolBytesMaxDefault),
  sandbox: z.enum(["auto", "bubblewrap", "none"]).default("auto"),
  /** What every job sees besides the system and its part of the place, where bubblewrap is used. */
  readOnlyPaths: z.array(z.string()).default([]),
  writablePaths: z.array(z.string()).default([]),
  /** The executor's whole environment besides PATH, HOME and LANG. */
  environment: z.record(z.string(), z.string()).default({}),
  /** Exit when stdin closes; executors are left alone. */
  exitWithParent: z.boolean().default(false),
});
export type AgentConfiguration = z.output<typeof AgentConfiguration>;

/** Reads and checks the file; a `Fault` names every key that is wrong. */
export async function readConfiguration(file: string): Promise<AgentConfiguration> {
  const text = await readText(file, configurationBytesMax);
  if (text === null) {
    throw new Fault("not_found", `Expected the agent's configuration in ${file}, got no file.`);
  }
  const parsed = AgentConfiguration.safeParse(parseJson(text));
  if (parsed.success) return parsed.data;
  throw new Fault(
    "invalid",
    `Expected a valid agent configuration in ${file}, got: ${z.prettifyError(parsed.error)}. Correct the file and start the agent again.`,
  );
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
