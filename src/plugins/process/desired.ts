/**
 * From a component's rendered configuration to the process that the supervisor shall keep running, and
 * what differs between two of them. Pure, so that plan and apply cannot disagree.
 */
import { join } from "node:path";
import { z } from "zod";
import { digestOfJson } from "../../model/json.ts";
import { CommandLine, DurationMs, EnvVars } from "../../plugin/config-schema.ts";
import { OperationFailure } from "../../plugin/plugin.ts";
import type { PluginRequest } from "../../protocol/plugin-request.ts";
import type { DesiredProcess } from "../../protocol/supervisor-folder.ts";

const defaults = { intervalMs: 1000, timeoutMs: 2000, threshold: 3, stopGraceMs: 10_000 };

const Health = z
  .object({
    http: z.string().startsWith("/", "expected a path such as `/healthz`").optional(),
    tcp: z.literal(true).optional(),
    command: CommandLine.optional(),
    interval: DurationMs.default(defaults.intervalMs),
    timeout: DurationMs.default(defaults.timeoutMs),
    threshold: z.coerce.number().int().min(1).default(defaults.threshold),
  })
  .refine(
    ({ http, tcp, command }) =>
      [http, tcp, command].filter((way) => way !== undefined).length === 1,
    "expected exactly one of `http`, `tcp` and `command`",
  );

export const Config = z.object({
  command: CommandLine,
  port: z.coerce.number().int().min(0).max(65_535).optional(),
  env_vars: EnvVars.default({}),
  replicas: z.coerce.number().int().default(1),
  health: Health.optional(),
  restart: z.enum(["always", "never"]).default("always"),
});
export type Config = z.output<typeof Config>;

/** What the supervisor shall run for this component. */
export function desiredProcess(
  request: PluginRequest,
  config: Config,
  place: { artifactDirectory: string; dataDirectory: string; nodeDirectory: string },
): DesiredProcess {
  if (config.replicas !== 1) {
    throw new OperationFailure(
      `Expected \`replicas = 1\` for \`${request.component.name}\`, got ${config.replicas}: a \`process\` runs once per install. Remove the key.`,
    );
  }
  const process: Omit<DesiredProcess, "revision"> = {
    version: 1,
    command: config.command,
    directory: place.artifactDirectory,
    environment: {
      PATH: `${place.nodeDirectory}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`,
      HOME: place.dataDirectory,
      LANG: "C.UTF-8",
      DATA_DIR: place.dataDirectory,
      LANDFALL_COMPONENT: request.component.name,
      LANDFALL_INSTALL_ID: request.install?.id ?? "",
      LANDFALL_INSTALL_NAME: request.install?.name ?? "",
      ...config.env_vars,
    },
    port: config.port ?? null,
    health: healthOf(config),
    restart: config.restart,
    stopSignal: "SIGTERM",
    stopGraceMs: defaults.stopGraceMs,
  };
  return { ...process, revision: digestOfJson(process) };
}

/** The lines that a person reads before they approve; values are redacted by the executor. */
export function describeChange(before: DesiredProcess | null, after: DesiredProcess): string[] {
  if (before?.revision === after.revision) return [];
  const old = before ? flatten(before) : new Map<string, string>();
  const next = flatten(after);
  const lines = [before ? "~ process" : "+ process"];
  for (const key of [...new Set([...old.keys(), ...next.keys()])].sort()) {
    const [from, to] = [old.get(key), next.get(key)];
    if (from === to) continue;
    if (from === undefined) lines.push(`  + ${key}: ${to}`);
    else if (to === undefined) lines.push(`  - ${key}: ${from}`);
    else lines.push(`  ~ ${key}: ${from} → ${to}`);
  }
  return lines;
}

/** Where the component's own files live in the supervisor's folder. */
export function dataDirectoryOf(supervisorDirectory: string, component: string): string {
  return join(supervisorDirectory, "data", component);
}

function healthOf(config: Config): DesiredProcess["health"] {
  const { health } = config;
  // Whoever has a port shall at least listen on it.
  if (!health && config.port !== undefined) {
    const { intervalMs, timeoutMs, threshold } = defaults;
    return { tcp: true, intervalMs, timeoutMs, threshold };
  }
  if (!health) return null;
  return {
    ...(health.http === undefined ? {} : { http: health.http }),
    ...(health.tcp === undefined ? {} : { tcp: health.tcp }),
    ...(health.command === undefined ? {} : { command: health.command }),
    intervalMs: health.interval,
    timeoutMs: health.timeout,
    threshold: health.threshold,
  };
}

function flatten(process: DesiredProcess): Map<string, string> {
  const { environment, health, ...rest } = process;
  const lines = new Map<string, string>([
    ["command", rest.command.join(" ")],
    ["directory", rest.directory],
    ["port", rest.port === null ? "none" : rest.port === 0 ? "picked" : String(rest.port)],
    ["restart", rest.restart],
    ["health", health ? JSON.stringify(health) : "none"],
  ]);
  for (const [name, value] of Object.entries(environment)) lines.set(`env ${name}`, value);
  return lines;
}
