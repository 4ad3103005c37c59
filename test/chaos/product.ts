/**
 * The whole real product on one data folder: PostgreSQL, registry, server, build agent, and installs
 * with supervisor, registry and agent each; every agent behind a fault proxy of its own. What dies is
 * started again by what starts it in `landfall dev`: nothing here helps a job along.
 */
import { randomUUID } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { bundlePrograms } from "../../bin/bundle.ts";
import type { Programs } from "../../src/cli/context.ts";
import { type KeptPostgres, keepPostgres } from "../../src/cli/dev/kept-postgres.ts";
import { type KeptProgram, keepProgram } from "../../src/cli/dev/kept-program.ts";
import { type Layout, layoutOf, logPath } from "../../src/cli/dev/layout.ts";
import {
  buildAgentConfig,
  registryConfig,
  serverConfig,
} from "../../src/cli/dev/program-configs.ts";
import { keepSupervisors, type Supervisors } from "../../src/cli/dev/supervisors.ts";
import { replaceFile } from "../../src/files/replace-file.ts";
import type { InstallView } from "../../src/protocol/api.ts";
import { projectRoot } from "../promises.ts";
import { freePort, until } from "../system.ts";
import { type Api, createApi } from "./api.ts";
import { createDatabaseReader, type DatabaseReader } from "./database-reader.ts";
import { type FaultProxy, startFaultProxy } from "./fault-proxy.ts";
import { liveProcesses, signal } from "./processes.ts";

export interface ProductOptions {
  readonly data: string;
  readonly installs: readonly string[];
  /** A lease of another length than the product's own: it is a constant, changed in a copy of the bundle. */
  readonly leaseSeconds?: number;
  /** Variables for programs: the vendor's (server and registry), and the agents of the installs. */
  readonly environment?: {
    readonly vendor?: Readonly<Record<string, string>>;
    readonly agents?: Readonly<Record<string, string>>;
  };
  readonly tell: (text: string) => void;
}

export interface Install {
  readonly name: string;
  readonly id: string;
  readonly directory: string;
  readonly proxy: FaultProxy;
}

export interface Product {
  readonly data: string;
  readonly layout: Layout;
  readonly ledger: string;
  readonly api: Api;
  readonly database: DatabaseReader;
  readonly buildProxy: FaultProxy;
  /** Those that are there; `addInstalls` fills it. */
  readonly installs: Install[];
  /** Makes the installs and puts a proxy before the agent of each. */
  addInstalls(app: string): Promise<void>;
  /** Kills the server and keeps it away until the function that it gives is called. */
  takeServerAway(): Promise<() => Promise<void>>;
  /** The postmaster that runs now. */
  postgresPid(): number | null;
  /** Ctrl-C: everything ends in order. */
  stop(): Promise<void>;
}

const startMs = 60_000;
const stopMs = 25_000;
const agentStopMs = 12_000;

/** Starts the vendor's side; resolves when the server answers. */
export async function startProduct(options: ProductOptions): Promise<Product> {
  const layout = layoutOf(options.data);
  const folders = [layout.server.directory, layout.registry.directory, layout.buildAgent.directory];
  const ledgerFolder = join(options.data, "ledger");
  for (const folder of [...folders, layout.installs, layout.logs, ledgerFolder]) {
    await mkdir(folder, { recursive: true, mode: 0o700 });
  }
  const programs = await preparePrograms(options);
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const parts = createParts(options, layout, programs);
  const registryPort = await freePort();
  await replaceFile(layout.registry.config, JSON.stringify(registryConfig(layout, registryPort)));
  await replaceFile(layout.server.registryKeys, "{}");
  const vendor = { ...options.environment?.vendor };
  await parts.keep("registry", programs.registry, layout.registry.config, vendor);

  const registryUrl = `http://127.0.0.1:${registryPort}`;
  const configureServer = async (databaseUrl: string) => {
    const config = serverConfig(layout, { databaseUrl, port, url, registryUrl });
    await replaceFile(layout.server.config, JSON.stringify(config));
  };
  parts.postgres = await keepPostgres(layout.postgres, options.tell, async (moved) => {
    await configureServer(moved);
    parts.programs.get("server")?.restart();
  });
  await configureServer(parts.postgres.url);
  const startServer = () => parts.keep("server", programs.server, layout.server.config, vendor);
  await startServer();
  const api = createApi(url, layout.server.adminToken);
  await until(() => api.isReady(), "the server answers", startMs);

  const buildProxy = await startFaultProxy(port);
  const buildConfig = buildAgentConfig(layout, { serverUrl: buildProxy.url, programs });
  await replaceFile(
    layout.buildAgent.config,
    JSON.stringify({ ...buildConfig, writablePaths: [ledgerFolder] }),
  );
  await parts.keep("build-agent", programs.agent, layout.buildAgent.config);
  const installs: Install[] = [];
  return {
    data: options.data,
    layout,
    ledger: join(ledgerFolder, "ledger"),
    api,
    database: createDatabaseReader(() => databaseUrlOf(layout)),
    buildProxy,
    installs,
    async addInstalls(app) {
      const named = await Promise.all(
        options.installs.map((name) =>
          api.post<InstallView>("/api/installs", { app, name, inputs: {} }),
        ),
      );
      for (const { id, name } of named) {
        const directory = join(layout.installs, id);
        const proxy = await startFaultProxy(port);
        await until(() => isProvisioned(directory), `the sandbox of ${name}`, startMs);
        await pointAgentAt(directory, proxy.url, ledgerFolder);
        await addVariables(directory, options.environment?.agents);
        installs.push({ name, id, directory, proxy });
        await restartAgent(options.data, id);
        await until(() => proxy.count() > 0, `${name} comes through its proxy`, startMs);
      }
    },
    async takeServerAway() {
      await parts.programs.get("server")?.stop(0);
      return async () => {
        await startServer();
        await until(() => api.isReady(), "the server answers again", startMs);
      };
    },
    postgresPid: () => readPostmasterPid(layout),
    async stop() {
      for (const { proxy } of [...installs, { proxy: buildProxy }]) proxy.heal();
      await parts.stop();
      for (const { proxy } of [...installs, { proxy: buildProxy }]) await proxy.close();
    },
  };
}

function createParts({ tell }: ProductOptions, layout: Layout, programs: Programs) {
  const kept = new Map<string, KeptProgram>();
  const environment = programEnvironment();
  const supervisors: Supervisors = keepSupervisors({
    installs: layout.installs,
    command: programs.supervisor,
    environment,
    logOf: (id) => logPath(layout, `supervisor-${id}`),
    tell,
  });
  const parts = {
    postgres: null as KeptPostgres | null,
    programs: kept as ReadonlyMap<string, KeptProgram>,
    async keep(
      name: string,
      command: readonly string[],
      config: string,
      more: Record<string, string> = {},
    ) {
      const program = await keepProgram({
        name,
        command: [...command, "--config", config],
        environment: { ...environment, ...more },
        logFile: logPath(layout, name),
        stopSignal: name === "build-agent" ? "SIGINT" : "SIGTERM",
        tell,
      });
      kept.set(name, program);
    },
    async stop() {
      await Promise.all([kept.get("build-agent")?.stop(agentStopMs), supervisors.stop(stopMs)]);
      for (const name of ["server", "registry"]) await kept.get(name)?.stop(stopMs);
      await parts.postgres?.stop();
    },
  };
  return parts;
}

async function preparePrograms({ data, leaseSeconds }: ProductOptions): Promise<Programs> {
  const files = await bundlePrograms(projectRoot, join(projectRoot, "dist"));
  if (leaseSeconds !== undefined) {
    const text = await readFile(files.server, "utf8");
    const changed = text.replace(/\bleaseSeconds = 30;/, `leaseSeconds = ${leaseSeconds};`);
    if (changed === text) throw new Error("Expected the lease's length in the server's bundle.");
    files.server = join(data, "server.mjs");
    await writeFile(files.server, changed);
  }
  const command = (file: string) => [
    process.execPath,
    "--disable-warning=ExperimentalWarning",
    file,
  ];
  return {
    server: command(files.server),
    agent: command(files.agent),
    registry: command(files.registry),
    supervisor: command(files.supervisor),
    executor: command(files.executor),
    paths: [dirname(process.execPath), dirname(files.executor)],
  };
}

function programEnvironment(): Record<string, string> {
  return {
    PATH: `${dirname(process.execPath)}:${process.env.PATH ?? "/usr/bin:/bin"}`,
    HOME: process.env.HOME ?? "/",
    LANG: "C.UTF-8",
    NODE_COMPILE_CACHE: join(projectRoot, "dist", ".compile-cache"),
    LANDFALL_MIGRATIONS: join(projectRoot, "src", "server", "migrations"),
  };
}

function isProvisioned(directory: string): Promise<boolean> {
  return readFile(join(directory, "sandbox.json"), "utf8").then(
    () => true,
    () => false,
  );
}

/** Nothing runs there yet but what asks the server for jobs: it reads this at its next start. */
async function pointAgentAt(directory: string, serverUrl: string, ledger: string): Promise<void> {
  const file = join(directory, "agent", "config.json");
  const config: object = JSON.parse(await readFile(file, "utf8"));
  await replaceFile(file, JSON.stringify({ ...config, serverUrl, writablePaths: [ledger] }));
}

/** As an operator would: in what the supervisor is asked to run, under a new revision. */
async function addVariables(
  directory: string,
  variables: Readonly<Record<string, string>> | undefined,
): Promise<void> {
  if (!variables) return;
  const file = join(directory, "supervisor", "desired", "@agent.json");
  const desired: { environment: object } = JSON.parse(await readFile(file, "utf8"));
  const environment = { ...desired.environment, ...variables };
  const revision = randomUUID();
  await replaceFile(file, JSON.stringify({ ...desired, environment, revision }));
}

async function restartAgent(data: string, id: string): Promise<void> {
  const identity = join(layoutOf(data).installs, id, "agent", "identity.json");
  const isEnrolled = () => existsSync(identity);
  await until(isEnrolled, `the agent of ${id} has enrolled`, startMs);
  const agent = liveProcesses(data).find(({ kind, place }) => kind === "agent" && place === id);
  if (agent) signal(agent.pid, "SIGTERM");
}

function readPostmasterPid(layout: Layout): number | null {
  try {
    const text = readFileSync(join(layout.postgres, "cluster", "postmaster.pid"), "utf8");
    return Number(text.split("\n")[0]) || null;
  } catch {
    return null;
  }
}

async function databaseUrlOf(layout: Layout): Promise<string> {
  const config: { database: { url: string } } = JSON.parse(
    await readFile(layout.server.config, "utf8"),
  );
  return config.database.url;
}
