/** Nothing is left behind: no process, no folder of a job, no lock, no temporary file, no open transaction. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { liveProcesses } from "./processes.ts";
import type { Product } from "./product.ts";

const quietMs = 40_000;
const pollMs = 100;
/** Written beside and renamed into place: after a round none may be there. */
const temporary = /(\.tmp|\.new|^\.new-\w+|^\.[\w@.-]+\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+)$/;

/** Waits until every job has ended, every agent is connected and every executor is gone; else says what is not. */
export async function awaitQuiet(product: Product): Promise<string | null> {
  const deadline = performance.now() + quietMs;
  for (;;) {
    const noise = await findNoise(product);
    if (noise === null) return null;
    if (performance.now() > deadline) return `not quiet: ${noise}`;
    await delay(pollMs);
  }
}

async function findNoise(product: Product): Promise<string | null> {
  const unfinished = await product.database.query<{ id: string; state: string }>(
    "select id, state from jobs where outcome is null limit 5",
  );
  if (unfinished.length > 0) return `unfinished jobs ${JSON.stringify(unfinished)}`;
  const away = await product.database.query<{ id: string }>(
    "select id from agents where connection is null and revoked_at is null",
  );
  if (away.length > 0) return `agents that are not connected: ${JSON.stringify(away)}`;
  const running = liveProcesses(product.data).filter(({ jobFolder }) => jobFolder !== null);
  if (running.length > 0) return `processes of jobs: ${JSON.stringify(running.slice(0, 3))}`;
  const folders = await jobFolders(product);
  return folders.length > 0 ? `folders of jobs: ${folders.slice(0, 5).join(", ")}` : null;
}

async function jobFolders(product: Product): Promise<string[]> {
  const agents = [
    product.layout.buildAgent.directory,
    ...product.installs.map(({ directory }) => join(directory, "agent")),
  ];
  const found = await Promise.all(
    agents.map(async (agent) => {
      const names = await readdir(join(agent, "jobs")).catch(() => []);
      return names.map((name) => join(agent, "jobs", name));
    }),
  );
  return found.flat();
}

/** What is left behind. */
export async function findRemains(product: Product): Promise<string[]> {
  const processes = liveProcesses(product.data)
    .filter(({ jobFolder }) => jobFolder !== null)
    .map(({ kind, pid, command }) => `left behind: ${kind} ${pid} ${command.slice(0, 200)}`);
  const folders = (await jobFolders(product)).map((folder) => `left behind: ${folder}`);
  const names = await readdir(product.data, { recursive: true });
  const files = names
    .filter((name) => !name.startsWith("postgres/") && temporary.test(name.split("/").at(-1) ?? ""))
    .map((name) => `left behind: ${name}`);
  const sessions = await product.database.query<{ pid: number; query: string }>(
    `select pid, query from pg_stat_activity
     where state like 'idle in transaction%' and state_change < clock_timestamp() - interval '2 s'`,
  );
  const held = await product.database.query<{ id: string }>(
    "select id from jobs where (agent_id is not null or lease_expires_at is not null) and outcome is not null",
  );
  return [
    ...processes,
    ...folders,
    ...files,
    ...sessions.map((session) => `an open transaction: ${JSON.stringify(session)}`),
    ...held.map(({ id }) => `${id} has ended and is still leased`),
    ...product.installs.flatMap(({ name, directory }) => storeProblem(name, directory)),
  ];
}

/** Whoever holds a lock of the store keeps the next job waiting. */
function storeProblem(install: string, directory: string): string[] {
  try {
    const store = new DatabaseSync(join(directory, "store", "store.db"), { timeout: 1000 });
    try {
      store.exec("begin immediate; rollback");
      return [];
    } finally {
      store.close();
    }
  } catch (error) {
    return [`the store of ${install} is locked: ${String(error)}`];
  }
}
