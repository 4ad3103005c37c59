/**
 * The vendor's side on one machine: PostgreSQL, the vendor's registry, the server and the build agent,
 * each its own process, started as parallel as they allow and stopped in the reverse order.
 *
 *   PostgreSQL ──> server ──┬──> build agent
 *   registry ───────────────┘
 */
import { readFile, rm, stat, writeFile } from "node:fs/promises";
import { z } from "zod";
import { replaceFile } from "../../files/replace-file.ts";
import { Fault } from "../../model/fault.ts";
import { errorCode } from "../../model/file-fault.ts";
import type { Profile } from "../api-request.ts";
import type { Programs } from "../context.ts";
import { readToken, writeProfile } from "../profile.ts";
import { requireFreePort } from "./free-port.ts";
import { type KeptPostgres, keepPostgres } from "./kept-postgres.ts";
import { type KeptProgram, keepProgram } from "./kept-program.ts";
import { type Layout, logPath } from "./layout.ts";
import { logSize, readLogTail, turnOverLog } from "./log-file.ts";
import { buildAgentConfig, registryConfig, serverConfig } from "./program-configs.ts";
import type { Stopwatch } from "./stopwatch.ts";
import { waitFor } from "./wait-for.ts";

export interface PlatformOptions {
  readonly layout: Layout;
  readonly programs: Programs;
  readonly port: number;
  readonly databaseUrl: string | undefined;
  readonly environment: Readonly<Record<string, string>>;
  readonly stopwatch: Stopwatch;
  readonly signal: AbortSignal;
  readonly tell: (message: string) => void;
}

export interface Platform {
  /** Resolves when the server answers. */
  start(): Promise<Profile>;
  /** Not part of `start`: until the app is synced there is nothing to build, and two cores have enough to do. */
  startBuildAgent(): Promise<void>;
  stopBuildAgent(): Promise<void>;
  /** Server, registry, PostgreSQL, in this order. */
  stopRest(waitingFor: (name: string) => void): Promise<void>;
}

const readyTimeoutMs = 60_000;
const codeTimeoutMs = 10_000;
const tailLines = 15;
/** The agent gives its executors ten seconds. */
const agentGraceMs = 12_000;
const stopGraceMs = 8_000;

/** The vendor's side, not started yet. */
export function createPlatform(options: PlatformOptions): Platform {
  const { layout, stopwatch } = options;
  const url = `http://127.0.0.1:${options.port}`;
  const parts: {
    postgres?: KeptPostgres;
    registry?: KeptProgram;
    server?: KeptProgram;
    agent?: KeptProgram;
  } = {};

  let registryUrl = "";

  const writeServerConfig = (databaseUrl: string) =>
    writeConfig(
      layout.server.config,
      serverConfig(layout, { databaseUrl, port: options.port, url, registryUrl }),
    );
  const startDatabase = async () => {
    if (options.databaseUrl !== undefined) return options.databaseUrl;
    parts.postgres = await keepPostgres(layout.postgres, options.tell, async (moved) => {
      await writeServerConfig(moved);
      parts.server?.restart();
    });
    return parts.postgres.url;
  };
  const startAgent = async () => {
    const programs = options.programs;
    await writeConfig(
      layout.buildAgent.config,
      buildAgentConfig(layout, { serverUrl: url, programs }),
    );
    const { program } = await start(
      options,
      "build agent",
      programs.agent,
      layout.buildAgent.config,
      "SIGINT",
    );
    parts.agent = program;
  };

  return {
    async start() {
      const registryPort = await requireFreePort(0);
      registryUrl = `http://127.0.0.1:${registryPort}`;
      const startPlatform = async () => {
        // It loads while PostgreSQL starts, and waits for its configuration.
        await rm(layout.server.config, { force: true });
        const server = await launchServer(options, parts);
        const databaseUrl = await stopwatch.time("postgres", startDatabase);
        await writeServerConfig(databaseUrl);
        options.signal.throwIfAborted();
        return stopwatch.time("server", () => awaitServer(options, server));
      };
      const registry = stopwatch.time("registry", () =>
        startRegistry(options, parts, registryPort),
      );
      // Nobody is left behind unheard: the failure of one waits for the other.
      const [profile, ready] = await Promise.allSettled([startPlatform(), registry]);
      if (ready.status === "rejected") throw ready.reason;
      if (profile.status === "rejected") throw profile.reason;
      return profile.value;
    },
    async startBuildAgent() {
      if (parts.agent) return;
      if (!(await exists(layout.buildAgent.identity))) await untilCode(options);
      await startAgent();
    },
    async stopBuildAgent() {
      await parts.agent?.stop(agentGraceMs);
    },
    async stopRest(waitingFor) {
      for (const name of ["server", "registry"] as const) {
        waitingFor(`the ${name}`);
        await parts[name]?.stop(stopGraceMs);
      }
      waitingFor("PostgreSQL");
      await parts.postgres?.stop();
    },
  };
}

interface Started {
  readonly program: KeptProgram;
  /** Where in its log this start begins. */
  readonly logFrom: number;
}

async function start(
  options: PlatformOptions,
  name: string,
  command: readonly string[],
  config: string,
  stopSignal: NodeJS.Signals = "SIGTERM",
): Promise<Started> {
  const logFile = logPath(options.layout, name.replaceAll(" ", "-"));
  await turnOverLog(logFile);
  const logFrom = await logSize(logFile);
  const program = await keepProgram({
    name,
    command: [...command, "--config", config],
    environment: options.environment,
    logFile,
    stopSignal,
    tell: options.tell,
  });
  return { program, logFrom };
}

async function startRegistry(
  options: PlatformOptions,
  parts: { registry?: KeptProgram },
  port: number,
): Promise<void> {
  const { layout } = options;
  await writeConfig(layout.registry.config, registryConfig(layout, port));
  // No key yet opens nothing; the server puts its own there, and the registry reads them again.
  await writeFile(layout.server.registryKeys, "{}\n", { mode: 0o600, flag: "wx" }).catch(
    ignoreExisting,
  );
  await rm(layout.registry.port, { force: true });
  const { programs } = options;
  const started = await start(options, "registry", programs.registry, layout.registry.config);
  parts.registry = started.program;
  await untilReady(options, started, "registry", () => existsOrNull(layout.registry.port));
}

const ReadyFile = z.object({ url: z.string(), pid: z.int() });

async function launchServer(
  options: PlatformOptions,
  parts: { server?: KeptProgram },
): Promise<Started> {
  const { layout, programs } = options;
  await rm(layout.server.ready, { force: true });
  const command = [...programs.server, "--wait"];
  const started = await start(options, "server", command, layout.server.config);
  parts.server = started.program;
  return started;
}

async function awaitServer(options: PlatformOptions, started: Started): Promise<Profile> {
  const { layout } = options;
  await untilReady(options, started, "server", async () => {
    const ready = ReadyFile.safeParse(await readJson(layout.server.ready)).data;
    return ready && ready.pid === started.program.pid() ? ready : null;
  });
  const profile = {
    url: `http://127.0.0.1:${options.port}`,
    token: await readToken(layout.server.adminToken),
  };
  await writeProfile(layout.server.profile, profile);
  return profile;
}

async function untilCode({ layout, signal }: PlatformOptions): Promise<void> {
  const look = () => existsOrNull(layout.server.buildCode);
  await waitFor(look, { timeoutMs: codeTimeoutMs, signal });
}

/** Waits for a program's own word; one that ends at its first start says why in its log. */
async function untilReady<Value>(
  options: PlatformOptions,
  { program, logFrom }: Started,
  name: string,
  look: () => Promise<Value | null>,
): Promise<Value> {
  const logFile = logPath(options.layout, name);
  const ended = new AbortController();
  let reason = "";
  void program.firstExit.then((text) => {
    reason = text;
    ended.abort();
  });
  const signal = AbortSignal.any([options.signal, ended.signal]);
  const value = await waitFor(look, { timeoutMs: readyTimeoutMs, signal }).catch(
    (error: unknown) => {
      options.signal.throwIfAborted();
      if (!ended.signal.aborted) throw error;
      return null;
    },
  );
  if (value !== null) return value;
  const tail = (await readLogTail(logFile, logFrom, tailLines)).map((line) => `  │ ${line}`);
  throw new Fault(
    "unavailable",
    [
      `Expected the ${name} to start, but it ${reason === "" ? "was not ready in a minute" : `ended (${reason})`}. Its log, \`${logFile}\`, says why:`,
      ...tail,
    ].join("\n"),
  );
}

/** Only for its owner: it may hold an address with a password. */
async function writeConfig(path: string, config: object): Promise<void> {
  // The server may be waiting for it, and must find it whole.
  await replaceFile(path, `${JSON.stringify(config, null, 2)}\n`);
}

function ignoreExisting(error: unknown): void {
  if (errorCode(error) !== "EEXIST") throw error;
}

async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, "utf8"));
  } catch {
    return undefined;
  }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}

async function existsOrNull(path: string): Promise<true | null> {
  return (await exists(path)) ? true : null;
}
