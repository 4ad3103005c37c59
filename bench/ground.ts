/** What measurements stand on: a PostgreSQL of their own, the real server over it, and rows to begin with. */
import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type AppId, createId, type InstallId } from "../src/model/ids.ts";
import type { Operation } from "../src/model/job.ts";
import { type Database, openDatabase } from "../src/server/database.ts";
import { freePort, until } from "../test/system.ts";
import { type Program, startProgram } from "./exchange.ts";
import type { BenchOptions } from "./options.ts";
import type { ServerUnderTest, Target } from "./server-under-test.ts";
import type { SimulatedAgents } from "./simulated-agents.ts";
import { cpuMsOf, listStatements, resetStatements, startCounting } from "./statements.ts";

export interface Ground {
  readonly directory: string;
  readonly database: Database;
  readonly databaseUrl: string;
  readonly serverUrl: string;
  readonly server: Program<ServerUnderTest>;
  /** What agents pin. */
  readonly trust: { rootPublicKey: string; keysetNumber: number };
  readonly appId: AppId;
  /** Installs in the order of their agents. */
  readonly installs: InstallId[];
  targets(component: string, operation?: Operation): Target[];
  /** With `--statements`: counts from here on, and tells of what was counted. */
  countStatements(): Promise<void>;
  tellStatements(jobs: number): Promise<void>;
  /** PostgreSQL's CPU time so far. */
  databaseCpuMs(): number;
  close(): Promise<void>;
}

/** Starts PostgreSQL and the server; the caller closes both. */
export async function createGround(options: BenchOptions): Promise<Ground> {
  const directory = await mkdtemp(join(tmpdir(), "landfall-bench-"));
  const postgres = await startCounting(directory, options.statements);
  const server = startProgram<ServerUnderTest>("server-under-test.ts", options);
  const port = await freePort();
  const serverUrl = `http://127.0.0.1:${port}`;
  const file = (name: string) => join(directory, name);
  const trust = await server.ask("start", {
    database: { url: postgres.url },
    listen: { host: "127.0.0.1", port },
    publicUrl: serverUrl,
    directory: file("server"),
    registryUrl: "http://127.0.0.1:9",
    registryKeysFile: file("registry-keys.json"),
    adminTokenFile: file("admin-token"),
    buildCodeFile: file("build-code"),
  });
  const database = openDatabase(postgres.connection, () => {});
  const appId = createId("app", new Date(), randomBytes);
  await database.query("insert into apps (id, name) values ($1, 'bench')", [appId]);
  const installs: InstallId[] = [];
  return {
    directory,
    database,
    databaseUrl: postgres.url,
    serverUrl,
    server,
    trust,
    appId,
    installs,
    targets: (component, operation = "plan") =>
      installs.map((installId) => ({ appId, installId, component, operation })),
    async countStatements() {
      if (options.statements) await resetStatements(database);
    },
    async tellStatements(jobs) {
      if (!options.statements) return;
      process.stderr.write(`per job:\n${await listStatements(database, jobs)}\n`);
    },
    databaseCpuMs: () => cpuMsOf(postgres.pid),
    async close() {
      await server.stop();
      await database.close();
      await postgres.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** An install for each agent, with the agent's public key in its row: enrolment without its ceremony. */
export async function insertAgents(
  { database, appId, installs }: Ground,
  agents: readonly { readonly agentId: string; readonly publicKey: string }[],
): Promise<void> {
  const ids = agents.map(() => createId("ins", new Date(), randomBytes));
  await database.query(
    `insert into installs (id, app_id, name, state, sandbox_type, sandbox, reconcile_due_at)
     select id, $2, id, 'active', 'local', '{"outputs":{},"outputsHash":""}', null
     from unnest($1::text[]) as id`,
    [ids, appId],
  );
  await database.query(
    `insert into agents (id, role, install_id, public_key)
     select id, 'install', install_id, public_key
     from unnest($1::text[], $2::text[], $3::text[]) as given (id, install_id, public_key)`,
    [agents.map(({ agentId }) => agentId), ids, agents.map(({ publicKey }) => publicKey)],
  );
  await database.query("analyze agents; analyze installs");
  installs.push(...ids);
}

const connectMs = 180_000;

/** Simulated agents in a second process, each with an install of its own, connected. */
export async function connectAgents(
  ground: Ground,
  agents: Program<SimulatedAgents>,
  { count, slots }: { count: number; slots: number },
): Promise<void> {
  await insertAgents(ground, await agents.ask("create", count));
  const { serverUrl, trust } = ground;
  const { welcomed } = await agents.ask("connect", {
    serverUrl,
    ...trust,
    slots,
    timeoutMs: connectMs,
  });
  if (welcomed < ground.installs.length) {
    const { refusals } = await agents.ask("report");
    throw new Error(
      `Expected ${ground.installs.length} agents to be welcomed, got ${welcomed}. ${refusals.join(" ")}`,
    );
  }
}

/** Waits until this many jobs have an outcome. */
export async function untilFinished(
  { database }: Ground,
  count: number,
  timeoutMs: number,
): Promise<void> {
  let finished = 0;
  await until(
    async () => {
      const [row] = await database.query<{ count: number }>(
        "select count(*) as count from jobs where outcome is not null",
      );
      finished = row?.count ?? 0;
      return finished >= count;
    },
    () => `${count} finished jobs, got ${finished}`,
    timeoutMs,
  );
}
