/**
 * How many jobs a second.
 *
 * (a) No-op jobs from insert to recorded outcome: the real server signs manifests, grants and frames,
 * writes audit events and log chunks, and records outcomes; simulated agents verify every signature.
 * Baseline: graphile-worker over the same PostgreSQL, which does none of that.
 *
 * (b) Real executors through the real server and agent. Baseline: the same bundle spawned bare, as
 * many at once, on folders that hold the same job.
 */
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { join } from "node:path";
import { createId } from "../src/model/ids.ts";
import { encodePrivateKey, encodePublicKey } from "../src/protocol/signed-document.ts";
import { until } from "../test/system.ts";
import { clockMs, startProgram } from "./exchange.ts";
import { type ExecutorPlace, makeFolder, prepareExecutors, spawnBare } from "./executors.ts";
import { formatMs, round } from "./figures.ts";
import { type Graphile, graphileSettings } from "./graphile.ts";
import { connectAgents, createGround, type Ground, insertAgents, untilFinished } from "./ground.ts";
import type { BenchOptions } from "./options.ts";
import type { RealAgent } from "./real-agent.ts";
import type { Report } from "./report.ts";
import type { SimulatedAgents } from "./simulated-agents.ts";

const agentsMax = 200;
const slots = 8;
const queueBatch = 500;
const executorsAtOnce = 4;
const executorJobs = 80;
const jobsMs = 230_000;
const [jobsAim, executorsAim] = [0.25, 0.7];

interface Machine {
  readonly perSecond: number;
  readonly serverCpuMs: number;
  readonly databaseCpuMs: number;
}

/** Measures (a) and (b), each right beside its baseline. */
export async function benchThroughput(
  say: (line: string) => void,
  options: BenchOptions,
): Promise<Report> {
  const ground = await createGround(options);
  try {
    say(`baseline: graphile-worker, ${options.jobs} jobs`);
    const graphile = await measureGraphile(ground, options.jobs);
    say(`${options.jobs} no-op jobs over ${agentsMax} simulated agents`);
    const machine = await measureMachine(ground, options.jobs);
    say(`${executorJobs} real executors, ${executorsAtOnce} at once`);
    const executors = await measureExecutors(ground);
    return report(options, { graphile, machine, ...executors });
  } finally {
    await ground.close();
  }
}

async function measureGraphile({ databaseUrl }: Ground, jobs: number): Promise<number> {
  const program = startProgram<Graphile>("graphile.ts");
  try {
    await program.ask("measure", { databaseUrl, jobs: Math.min(jobs, 1000) });
    const { ms } = await program.ask("measure", { databaseUrl, jobs });
    return jobs / (ms / 1000);
  } finally {
    await program.kill();
  }
}

async function measureMachine(ground: Ground, jobs: number): Promise<Machine> {
  const agents = startProgram<SimulatedAgents>("simulated-agents.ts");
  try {
    await connectAgents(ground, agents, { count: agentsMax, slots });
    await queueAll(ground, Math.min(jobs, 1000), "warm");
    await untilFinished(ground, Math.min(jobs, 1000), jobsMs);
    await agents.ask("forgetReport");
    await ground.countStatements();
    const before = await ground.server.ask("usage", true);
    const databaseBefore = ground.databaseCpuMs();
    const [begin] = await ground.database.query<{ at: Date }>("select clock_timestamp() as at");
    await queueAll(ground, jobs, "c");
    await until(
      async () => (await agents.ask("progress")).ended >= jobs,
      () => `${jobs} jobs acknowledged`,
      jobsMs,
    );
    const after = await ground.server.ask("usage", false);
    const databaseCpuMs = (ground.databaseCpuMs() - databaseBefore) / jobs;
    await ground.tellStatements(jobs);
    const [end] = await ground.database.query<{ at: Date; count: number }>(
      `select max(finished_at) as at, count(*) as count from jobs
       where component like 'c%' and state = 'succeeded' and n = 1`,
    );
    const { refusals } = await agents.ask("report");
    if (!begin || !end || end.count !== jobs) {
      throw new Error(
        `Expected ${jobs} jobs to end once, got ${end?.count}. ${refusals.join(" ")}`,
      );
    }
    const seconds = (end.at.getTime() - begin.at.getTime()) / 1000;
    const serverCpuMs = (after.cpuMs - before.cpuMs) / jobs;
    return { perSecond: jobs / seconds, serverCpuMs, databaseCpuMs };
  } finally {
    await agents.kill();
  }
}

/** In batches over all installs, so that every agent has work from the beginning. */
async function queueAll(ground: Ground, jobs: number, name: string): Promise<void> {
  const { installs } = ground;
  for (let queued = 0; queued < jobs; queued += queueBatch) {
    const size = Math.min(queueBatch, jobs - queued);
    const targets = Array.from({ length: size }, (_, index) => {
      const number = queued + index;
      const installId = installs[number % installs.length];
      if (!installId) throw new Error("Expected an install.");
      const component = `${name}${Math.floor(number / installs.length)}`;
      return { appId: ground.appId, installId, component, operation: "plan" as const };
    });
    await ground.server.ask("queue", targets);
  }
}

async function measureExecutors(ground: Ground): Promise<{ bare: number; real: number }> {
  const executors = await prepareExecutors(join(ground.directory, "executors"));
  await spawnMany(executors, executorsAtOnce);
  const bareBefore = await spawnMany(executors, executorJobs / 2);
  const real = await measureRealAgent(ground, executors);
  const bareAfter = await spawnMany(executors, executorJobs / 2);
  return { bare: executorJobs / (bareBefore + bareAfter), real };
}

/** Seconds for this many bare spawns, a few at once. */
async function spawnMany(executors: ExecutorPlace, count: number): Promise<number> {
  const folders = await Promise.all(Array.from({ length: count }, () => makeFolder(executors)));
  const begin = clockMs();
  await Promise.all(
    Array.from({ length: executorsAtOnce }, async () => {
      for (let folder = folders.pop(); folder; folder = folders.pop()) {
        await spawnBare(executors, folder);
      }
    }),
  );
  return (clockMs() - begin) / 1000;
}

async function measureRealAgent(ground: Ground, executors: ExecutorPlace): Promise<number> {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const agentId = createId("agt", new Date(), randomBytes);
  await insertAgents(ground, [{ agentId, publicKey: encodePublicKey(publicKey) }]);
  const target = ground.targets("x", "destroy").at(-1);
  if (!target) throw new Error("Expected an install.");
  const agent = startProgram<RealAgent>("real-agent.ts");
  try {
    await agent.ask("start", {
      directory: join(ground.directory, "agent"),
      serverUrl: ground.serverUrl,
      identity: { version: 1, agentId, privateKey: encodePrivateKey(privateKey), ...ground.trust },
      executors,
      slots: executorsAtOnce,
      isolation: "plain",
    });
    const numbered = (name: string, count: number) =>
      Array.from({ length: count }, (_, index) => ({ ...target, component: `${name}${index}` }));
    await ground.server.ask("queue", numbered("first", executorsAtOnce));
    await untilEnded(ground, target.installId, executorsAtOnce);
    const begin = clockMs();
    await ground.server.ask("queue", numbered("x", executorJobs));
    await untilEnded(ground, target.installId, executorsAtOnce + executorJobs);
    return executorJobs / ((clockMs() - begin) / 1000);
  } finally {
    await agent.stop();
  }
}

async function untilEnded({ database }: Ground, installId: string, count: number): Promise<void> {
  await until(
    async () => {
      const rows = await database.query(
        "select 1 from jobs where install_id = $1 and state = 'succeeded'",
        [installId],
      );
      return rows.length >= count;
    },
    `${count} executors ended`,
    120_000,
  );
}

function report(
  { jobs }: BenchOptions,
  found: { graphile: number; machine: Machine; bare: number; real: number },
): Report {
  const ratio = found.machine.perSecond / found.graphile;
  const executorsRatio = found.real / found.bare;
  const perSecond = (value: number) => `${value.toFixed(value < 100 ? 1 : 0)} a second`;
  return {
    rows: [
      [`baseline: graphile-worker, ${jobs} jobs`, perSecond(found.graphile)],
      ["  its settings", JSON.stringify(graphileSettings)],
      [
        `no-op jobs, ${agentsMax} agents × ${slots} slots, queued ${queueBatch} at once`,
        perSecond(found.machine.perSecond),
      ],
      [
        "  CPU per job",
        `server ${formatMs(found.machine.serverCpuMs)}, PostgreSQL ${formatMs(found.machine.databaseCpuMs)}`,
      ],
      ["  / baseline", `${ratio.toFixed(3)} (aim: at least ${jobsAim})`],
      [`baseline: bare spawns, ${executorsAtOnce} at once`, perSecond(found.bare)],
      ["real executors through server and agent", perSecond(found.real)],
      ["  / baseline", `${executorsRatio.toFixed(2)} (aim: at least ${executorsAim})`],
    ],
    aims: [
      {
        name: "no-op jobs / graphile-worker",
        value: round(ratio),
        aim: `>= ${jobsAim}`,
        ok: ratio >= jobsAim,
      },
      {
        name: "real executors / bare spawns",
        value: round(executorsRatio),
        aim: `>= ${executorsAim}`,
        ok: executorsRatio >= executorsAim,
      },
    ],
  };
}
