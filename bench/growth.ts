/**
 * What a job costs as the fleet grows: the same deploys on 100, 1,000 and 10,000 installs, with a
 * million finished jobs in the table each time, through the real server and simulated agents.
 *
 * Counted: the pages that PostgreSQL touched (`pg_stat_database`, all that it did meanwhile, the
 * server's polling included), and the time. Baseline: the same at 100 installs.
 */
import { randomBytes } from "node:crypto";
import { createId } from "../src/model/ids.ts";
import { digestOf } from "../src/model/json.ts";
import { noopApp } from "../test/server-context.ts";
import { until } from "../test/system.ts";
import { clockMs, type Program, startProgram } from "./exchange.ts";
import { formatMs, round } from "./figures.ts";
import { createGround, type Ground, insertAgents } from "./ground.ts";
import type { BenchOptions } from "./options.ts";
import type { Report } from "./report.ts";
import type { SimulatedAgents } from "./simulated-agents.ts";

const smallest = 100;
const components = ["web", "db"];
/** sync, plan, apply of each. */
const jobsPerInstall = 3 * components.length;
const [warmInstalls, deployedInstalls] = [10, 80];
const slots = 8;
const atOnce = 4;
const [pagesAim, timeAim] = [1.1, 1.5];

interface Cost {
  readonly installs: number;
  readonly pages: number;
  readonly ms: number;
  readonly serverCpuMs: number;
}

/** Measures at each size, smallest first. */
export async function benchGrowth(
  say: (line: string) => void,
  options: BenchOptions,
): Promise<Report> {
  const sizes = [smallest, Math.round(Math.sqrt(smallest * options.installs)), options.installs];
  const ground = await createGround(options);
  const agents = startProgram<SimulatedAgents>("simulated-agents.ts");
  try {
    const releaseId = await insertRelease(ground);
    await agents.ask("givePlans", true);
    const costs: Cost[] = [];
    for (const size of sizes) {
      say(`${size} installs, ${options.finished} finished jobs`);
      const fresh = size - ground.installs.length;
      await growTo(ground, agents, { size, releaseId, finished: options.finished });
      costs.push(await measure(ground, agents, size, fresh));
    }
    return report(options, costs);
  } finally {
    await agents.kill();
    await ground.close();
  }
}

async function insertRelease({ database, appId }: Ground): Promise<string> {
  const config = noopApp("bench", Object.fromEntries(components.map((name) => [name, []])));
  await database.query(
    "insert into app_configs (app_id, number, config, digest) values ($1, 1, $2, $3)",
    [appId, JSON.stringify(config), digestOf("config")],
  );
  const releaseId = createId("rel", new Date(), randomBytes);
  const release = Object.fromEntries(
    components.map((name) => [
      name,
      {
        buildId: "",
        artifact: { repository: `bench/${name}`, digest: digestOf(name), sizeBytes: 1 },
      },
    ]),
  );
  await database.query(
    "insert into releases (id, app_id, number, config_number, components) values ($1, $2, 1, 1, $3)",
    [releaseId, appId, JSON.stringify(release)],
  );
  return releaseId;
}

/** More installs; the finished jobs spread over all of them, newly written, so that none lies better than another. */
async function growTo(
  ground: Ground,
  agents: Program<SimulatedAgents>,
  { size, releaseId, finished }: { size: number; releaseId: string; finished: number },
): Promise<void> {
  const { database, installs, appId } = ground;
  await insertAgents(ground, await agents.ask("create", size - installs.length));
  await database.query(
    "update installs set release_id = $1, deploy = 1000000 where release_id is null",
    [releaseId],
  );
  await database.transaction("server", async (sql) => {
    await sql.query("set local session_replication_role = replica");
    await sql.query("set local statement_timeout = 0");
    const indexes = await sql.query<{ name: string; definition: string }>(
      `select indexname as name, indexdef as definition from pg_indexes
       where tablename = 'jobs' and indexname <> 'jobs_pkey'`,
    );
    await sql.query("truncate jobs, events cascade");
    for (const { name } of indexes) await sql.query(`drop index ${name}`);
    await sql.query(
      `insert into jobs (id, queue, operation, app_id, install_id, component, state, manifest,
                         manifest_digest, fingerprint, deploy, n, created_at, started_at, finished_at, outcome)
       select 'job_' || lpad(to_hex(number), 24, '0'), install, 'apply', $2, install,
              ($3::text[])[1 + number % $4], 'succeeded', repeat('x', 100), repeat('d', 71), repeat('f', 71),
              number / (array_length($1::text[], 1) * $4), 1, at, at, at, '{"status": "succeeded"}'
       from generate_series(1, $5::int) as number,
         lateral (select ($1::text[])[1 + number % array_length($1::text[], 1)] as install,
                         now() - make_interval(secs => $5::int - number) as at) as given`,
      [installs, appId, components, components.length, finished],
    );
    for (const { definition } of indexes) await sql.query(definition);
  });
  await calmDown(ground);
}

/** No vacuum of its own accord may be counted as a job's work. */
async function calmDown({ database }: Ground): Promise<void> {
  for (const name of ["jobs", "events", "installs", "agents", "install_components", "log_chunks"]) {
    await database.query(`alter table ${name} set (autovacuum_enabled = false)`);
    await database.query(`vacuum analyze ${name}`);
  }
  await database.query("checkpoint");
}

async function measure(
  ground: Ground,
  agents: Program<SimulatedAgents>,
  size: number,
  fresh: number,
): Promise<Cost> {
  // Spread over the new installs: neighbours in a table share pages.
  const wanted = warmInstalls + deployedInstalls;
  if (fresh < wanted) throw new Error(`Expected at least ${wanted} more installs, got ${fresh}.`);
  const first = size - fresh;
  const chosen = Array.from(
    { length: wanted },
    (_, index) => first + Math.floor((index * fresh) / wanted),
  );
  await agents.ask("connectChosen", {
    chosen,
    serverUrl: ground.serverUrl,
    ...ground.trust,
    slots,
    timeoutMs: 60_000,
  });
  const names = chosen.map((index) => ground.installs[index] ?? "");
  await deployAll(ground, agents, names.slice(0, warmInstalls));
  await ground.server.ask("flushStatistics");
  await ground.countStatements();
  const before = await touched(ground);
  const usageBefore = await ground.server.ask("usage", false);
  const begin = clockMs();
  await deployAll(ground, agents, names.slice(warmInstalls));
  const ms = clockMs() - begin;
  const usageAfter = await ground.server.ask("usage", false);
  await ground.server.ask("flushStatistics");
  const jobs = deployedInstalls * jobsPerInstall;
  await ground.tellStatements(jobs);
  return {
    installs: size,
    pages: ((await touched(ground)) - before) / jobs,
    ms: ms / jobs,
    serverCpuMs: (usageAfter.cpuMs - usageBefore.cpuMs) / jobs,
  };
}

async function deployAll(
  ground: Ground,
  agents: Program<SimulatedAgents>,
  names: readonly string[],
): Promise<void> {
  await agents.ask("forgetReport");
  const waiting = [...names];
  let begun = 0;
  while (waiting.length > 0) {
    const few = waiting.splice(0, atOnce);
    await ground.server.ask("deploy", few);
    begun += few.length;
    await until(
      async () => (await agents.ask("progress")).ended >= begun * jobsPerInstall,
      () => `${begun} installs deployed`,
      60_000,
    );
  }
}

async function touched({ database }: Ground): Promise<number> {
  const [row] = await database.query<{ pages: number }>(
    `select blks_hit + blks_read as pages from pg_stat_database where datname = current_database()`,
  );
  return row?.pages ?? Number.NaN;
}

function report({ finished }: BenchOptions, costs: readonly Cost[]): Report {
  const [baseline, ...grown] = costs;
  const last = grown.at(-1);
  if (!baseline || !last) throw new Error("Expected three sizes.");
  const worst = (of: (cost: Cost) => number) =>
    Math.max(...grown.map((cost) => of(cost) / of(baseline)));
  const [pages, time] = [worst((cost) => cost.pages), worst((cost) => cost.ms)];
  return {
    rows: [
      ["finished jobs in the table", String(finished)],
      ...costs.map((cost): [string, string] => [
        `${cost.installs} installs, per job`,
        `${cost.pages.toFixed(1)} pages, ${formatMs(cost.ms)}, server's CPU ${formatMs(cost.serverCpuMs)}`,
      ]),
      ["pages, worst / at 100", `${pages.toFixed(3)} (aim: at most ${pagesAim})`],
      ["time, worst / at 100", `${time.toFixed(2)} (aim: at most ${timeAim})`],
    ],
    aims: [
      {
        name: "pages per job / at 100",
        value: round(pages),
        aim: `<= ${pagesAim}`,
        ok: pages <= pagesAim,
      },
      {
        name: "time per job / at 100",
        value: round(time),
        aim: `<= ${timeAim}`,
        ok: time <= timeAim,
      },
    ],
  };
}
