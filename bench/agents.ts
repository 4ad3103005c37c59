/**
 * Ten thousand agents at once: what each costs the server in memory, what their heartbeats cost while
 * nothing happens, and how long it takes until all are back after all were cut at the same instant.
 * Some jobs are under way at that instant, and more are queued meanwhile: none may be lost or doubled.
 *
 * Baseline of the same run: a bare `ws` server with as many bare clients, the same jitter, the same
 * period of heartbeats.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { leaseSeconds } from "../src/server/job-machine.ts";
import { until } from "../test/system.ts";
import type { BareServer } from "./bare-server.ts";
import { type Program, startProgram } from "./exchange.ts";
import { formatMs, round } from "./figures.ts";
import { connectAgents, createGround, type Ground } from "./ground.ts";
import type { BenchOptions } from "./options.ts";
import type { Report } from "./report.ts";
import type { Usage } from "./server-under-test.ts";
import type { SimulatedAgents } from "./simulated-agents.ts";

const slots = 8;
const heartbeatMs = (leaseSeconds * 1000) / 3;
/** Two whole periods of heartbeats, and garbage of the handshakes is gone by then. */
const idleMs = 2 * heartbeatMs;
const heldShare = 0.05;
const queuedMeanwhile = 100;
const stormMs = 120_000;
const stormRounds = 3;
const [memoryAimKb, stormAim] = [25, 3];

interface Fleet {
  readonly kbEach: number;
  readonly heapKbEach: number;
  readonly idleCpu: number;
  /** PostgreSQL's, of one core. */
  readonly databaseCpu: number;
  readonly stormsMs: number[];
  readonly failed: number;
}

interface Fate {
  readonly jobs: number;
  readonly lost: number;
  readonly doubled: number;
}

/** Measures the bare fleet, then the real one. */
export async function benchAgents(
  say: (line: string) => void,
  options: BenchOptions,
): Promise<Report> {
  const ground = await createGround(options);
  try {
    say(`baseline: ${options.agents} bare clients`);
    const bare = await measureBareFleet(ground, options.agents);
    say(`${options.agents} simulated agents`);
    const { fleet, fate } = await measureFleet(ground, options.agents, say);
    return report(options, bare, fleet, fate);
  } finally {
    await ground.close();
  }
}

async function measureBareFleet({ databaseUrl }: Ground, count: number): Promise<Fleet> {
  const server = startProgram<BareServer>("bare-server.ts");
  const clients = startProgram<SimulatedAgents>("simulated-agents.ts");
  try {
    const { url } = await server.ask("start", databaseUrl);
    const empty = await server.ask("usage", true);
    await clients.ask("connectBare", { url, count, heartbeatMs });
    const full = await server.ask("usage", true);
    const idle = await idleCpu(() => server.ask("usage", false));
    const stormsMs: number[] = [];
    let failed = 0;
    for (let turn = 0; turn < stormRounds; turn++) {
      const { ms, open } = await clients.ask("stormBare", stormMs);
      stormsMs.push(ms);
      failed += count - open;
      await sleep(1000);
    }
    return { ...memoryEach(empty, full, count), idleCpu: idle, databaseCpu: 0, stormsMs, failed };
  } finally {
    await clients.kill();
    await server.kill();
  }
}

async function measureFleet(
  ground: Ground,
  count: number,
  say: (line: string) => void,
): Promise<{ fleet: Fleet; fate: Fate }> {
  const agents = startProgram<SimulatedAgents>("simulated-agents.ts");
  try {
    const empty = await ground.server.ask("usage", true);
    await connectAgents(ground, agents, { count, slots });
    await sleep(1000);
    const full = await ground.server.ask("usage", true);
    say("idle, with heartbeats");
    const databaseBefore = ground.databaseCpuMs();
    const idle = await idleCpu(() => ground.server.ask("usage", false));
    const databaseCpu = (ground.databaseCpuMs() - databaseBefore) / idleMs;
    say("all cut at once, jobs under way");
    const { stormsMs, failed, fate } = await storms(ground, agents, count);
    const fleet = {
      ...memoryEach(empty, full, count),
      idleCpu: idle,
      databaseCpu,
      stormsMs,
      failed,
    };
    return { fleet, fate };
  } finally {
    await agents.kill();
  }
}

async function idleCpu(usage: () => Promise<Usage>): Promise<number> {
  const before = await usage();
  await sleep(idleMs);
  const after = await usage();
  return (after.cpuMs - before.cpuMs) / (after.atMs - before.atMs);
}

function memoryEach(empty: Usage, full: Usage, count: number) {
  return {
    kbEach: (full.rssBytes - empty.rssBytes) / 1024 / count,
    heapKbEach: (full.heapBytes - empty.heapBytes) / 1024 / count,
  };
}

/** Cuts everything a few times: jobs are held over each cut, and queued while agents come back. */
async function storms(ground: Ground, agents: Program<SimulatedAgents>, count: number) {
  const stormsMs: number[] = [];
  let failed = 0;
  let queued = 0;
  await agents.ask("forgetReport");
  const held = Math.ceil(count * heldShare);
  for (let turn = 0; turn < stormRounds; turn++) {
    await agents.ask("hold", true);
    await ground.server.ask("queue", ground.targets(`held${turn}`).slice(0, held));
    queued += held;
    await until(
      async () => (await agents.ask("progress")).launched >= queued,
      () => `${queued} jobs under way`,
      60_000,
    );
    const during = ground.targets(`during${turn}`).slice(-queuedMeanwhile);
    const [storm] = await Promise.all([
      agents.ask("storm", stormMs),
      ground.server.ask("queueSteadily", { targets: during, everyMs: 20 }),
    ]);
    queued += during.length;
    stormsMs.push(storm.ms);
    failed += count - storm.welcomed;
    await agents.ask("hold", false);
    await until(
      async () => (await agents.ask("progress")).ended >= queued,
      () => `${queued} jobs ended`,
      90_000,
    ).catch(() => {}); // told as lost below
  }
  return { stormsMs, failed, fate: await judge(ground, agents, queued) };
}

/** From the database and from what the agents launched: each job ended once, and was launched once. */
async function judge(
  { database }: Ground,
  agents: Program<SimulatedAgents>,
  queued: number,
): Promise<Fate> {
  const { launches } = await agents.ask("report");
  const rows = await database.query<{ id: string }>(
    "select id from jobs where state = 'succeeded'",
  );
  const launched = new Map(launches.map(({ jobId, count }) => [jobId, count]));
  const once = rows.filter(({ id }) => launched.get(id) === 1).length;
  const doubled = launches.filter(({ count }) => count > 1).length;
  return { jobs: queued, lost: queued - once - doubled, doubled };
}

function report(
  { agents }: BenchOptions,
  bare: Fleet,
  fleet: Fleet,
  { jobs, lost, doubled }: Fate,
): Report {
  const middle = (values: readonly number[]) => [...values].sort((a, b) => a - b)[1] ?? Number.NaN;
  const ratio = middle(fleet.stormsMs) / middle(bare.stormsMs);
  const percent = (share: number) => `${(share * 100).toFixed(1)} %`;
  const kb = (value: number) => `${value.toFixed(1)} KB`;
  const storms = (values: readonly number[]) => values.map(formatMs).join(", ");
  return {
    rows: [
      ["agents", String(agents)],
      ["memory each, bare", `${kb(bare.kbEach)} (${kb(bare.heapKbEach)} of it in use)`],
      [
        "memory each",
        `${kb(fleet.kbEach)} (${kb(fleet.heapKbEach)} of it in use; aim: at most ${memoryAimKb} KB)`,
      ],
      ["idle CPU with heartbeats, bare", `${percent(bare.idleCpu)} of one core`],
      [
        "idle CPU with heartbeats",
        `${percent(fleet.idleCpu)} of one core, and PostgreSQL ${percent(fleet.databaseCpu)}`,
      ],
      ["all cut and back, bare", storms(bare.stormsMs)],
      ["all cut and back", storms(fleet.stormsMs)],
      ["  middle / bare's", `${ratio.toFixed(2)} (aim: at most ${stormAim})`],
      ["agents that did not come back", `${fleet.failed} (bare: ${bare.failed})`],
      ["jobs over the cuts", `${jobs}, lost ${lost}, doubled ${doubled}`],
    ],
    aims: [
      {
        name: "memory each (KB)",
        value: round(fleet.kbEach),
        aim: `<= ${memoryAimKb}`,
        ok: fleet.kbEach <= memoryAimKb,
      },
      { name: "storm / bare", value: round(ratio), aim: `<= ${stormAim}`, ok: ratio <= stormAim },
      { name: "failed agents", value: fleet.failed, aim: "== 0", ok: fleet.failed === 0 },
      {
        name: "jobs lost or doubled",
        value: lost + doubled,
        aim: "== 0",
        ok: lost + doubled === 0,
      },
    ],
  };
}
