/**
 * How long a job takes from its commit to its agent, and from there to the executor's first instruction.
 *
 *   commit of the job → the server claims it (a second commit), signs and sends it → the agent has
 *   verified it → launcher → first instruction of the executor's bundle
 *
 * Baselines of the same run: one bare commit and one bare `ws` push to a client in another process,
 * timed from the beginning of that commit (it stands for the one that claims the job); a bare spawn of
 * the same bundle.
 */
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chooseIsolation, type Isolation } from "../src/agent/isolation.ts";
import { createId } from "../src/model/ids.ts";
import { encodePrivateKey, encodePublicKey } from "../src/protocol/signed-document.ts";
import { until } from "../test/system.ts";
import type { BareServer } from "./bare-server.ts";
import { type Program, startProgram } from "./exchange.ts";
import { makeFolder, prepareExecutors, spawnBare } from "./executors.ts";
import { formatMs, formatSpread, round, spread } from "./figures.ts";
import { connectAgents, createGround, type Ground, insertAgents } from "./ground.ts";
import type { BenchOptions } from "./options.ts";
import type { RealAgent } from "./real-agent.ts";
import type { Report } from "./report.ts";
import type { QueuedJob, Target } from "./server-under-test.ts";
import type { SimulatedAgents } from "./simulated-agents.ts";

const idleTurns = 11;
const idleJobsPerTurn = 60;
const idleEveryMs = 25;
const busySeconds = 20;
const busyPerSecond = 50;
const startRounds = 30;
const slots = 8;
const [idleAim, busyAim, startAimMs] = [5, 15, 25];

interface Receipts {
  /** From the answer to the job's commit. */
  readonly fromCommitted: number[];
  /** From the moment at which `commit` was sent. */
  readonly fromCommit: number[];
}

/** Measures receipt (idle, then among many) and start. */
export async function benchDispatch(
  say: (line: string) => void,
  options: BenchOptions,
): Promise<Report> {
  const ground = await createGround(options);
  const agents = startProgram<SimulatedAgents>("simulated-agents.ts");
  try {
    say("receipt: one agent, idle, in turns with the baseline");
    await connectAgents(ground, agents, { count: 1, slots });
    const { bare, idle } = await measureIdle(ground, agents);
    say(`receipt: ${options.agents} agents, ${busyPerSecond} jobs/s`);
    await connectAgents(ground, agents, { count: options.agents - 1, slots });
    await sleep(2000);
    await ground.server.ask("usage", true);
    const busy = await measureReceipt(ground, agents, busyTargets(ground), 1000 / busyPerSecond);
    const { loopMaxMs } = await ground.server.ask("usage", false);
    await agents.ask("closeAll");
    say("start: bare spawns, then the real agent with its launchers");
    const starts = await measureStarts(ground);
    return report(options, { bare, idle, busy, loopMaxMs, ...starts });
  } finally {
    await agents.kill();
    await ground.close();
  }
}

/** In turns of two seconds, so that whatever else the machine does meets both alike. */
async function measureIdle(
  ground: Ground,
  agents: Program<SimulatedAgents>,
): Promise<{ bare: number[]; idle: Receipts }> {
  const server = startProgram<BareServer>("bare-server.ts");
  const bare: number[] = [];
  const idle: Receipts = { fromCommitted: [], fromCommit: [] };
  try {
    const { url } = await server.ask("start", ground.databaseUrl);
    await agents.ask("connectBare", { url, count: 1, heartbeatMs: 10_000 });
    for (let turn = 0; turn < idleTurns; turn++) {
      const pushes = await measureBare(server, agents);
      const receipts = await measureReceipt(ground, agents, idleTargets(ground, turn), idleEveryMs);
      if (turn === 0) continue; // to warm both up
      bare.push(...pushes);
      idle.fromCommitted.push(...receipts.fromCommitted);
      idle.fromCommit.push(...receipts.fromCommit);
    }
    return { bare, idle };
  } finally {
    await server.kill();
  }
}

async function measureBare(
  server: Program<BareServer>,
  agents: Program<SimulatedAgents>,
): Promise<number[]> {
  const begun = await server.ask("push", { count: idleJobsPerTurn, everyMs: idleEveryMs });
  await sleep(50);
  const receipts = await agents.ask("bareReceipts");
  const byNumber = new Map(receipts.map(({ number, atMs }) => [number, atMs]));
  return begun.map(({ number, beginAtMs }) => (byNumber.get(number) ?? Number.NaN) - beginAtMs);
}

function idleTargets(ground: Ground, turn: number): Target[] {
  const [target] = ground.targets("c");
  if (!target) throw new Error("Expected an install.");
  return Array.from({ length: idleJobsPerTurn }, (_, index) => ({
    ...target,
    component: `idle-${turn}-${index}`,
  }));
}

function busyTargets(ground: Ground): Target[] {
  const all = ground.targets("busy");
  return Array.from({ length: busySeconds * busyPerSecond }, (_, index) => {
    const target = all[Math.floor(Math.random() * all.length)];
    if (!target) throw new Error("Expected an install.");
    return { ...target, component: `busy${index}` };
  });
}

async function measureReceipt(
  ground: Ground,
  agents: Program<SimulatedAgents>,
  targets: readonly Target[],
  everyMs: number,
): Promise<Receipts> {
  await agents.ask("forgetReport");
  const queued = await ground.server.ask("queueSteadily", { targets, everyMs });
  await untilEnded(agents, targets.length);
  const { launches, refusals } = await agents.ask("report");
  if (refusals.length > 0) throw new Error(`Expected no refusal, got ${refusals.join(" ")}`);
  await agents.ask("forgetReport");
  return receiptsOf(queued, launches);
}

function receiptsOf(
  queued: readonly QueuedJob[],
  launches: readonly { jobId: string; atMs: number }[],
): Receipts {
  const received = new Map(launches.map(({ jobId, atMs }) => [jobId, atMs]));
  const from = (instant: (job: QueuedJob) => number) =>
    queued.map((job) => (received.get(job.id) ?? Number.NaN) - instant(job));
  return {
    fromCommitted: from(({ committedAtMs }) => committedAtMs),
    fromCommit: from(({ commitAtMs }) => commitAtMs),
  };
}

function untilEnded(agents: Program<SimulatedAgents>, count: number): Promise<void> {
  return until(
    async () => (await agents.ask("progress")).ended >= count,
    `${count} jobs ended`,
    120_000,
  );
}

async function isEnded({ database }: Ground, jobId: string): Promise<boolean> {
  const rows = await database.query("select 1 from jobs where id = $1 and outcome is not null", [
    jobId,
  ]);
  return rows.length > 0;
}

async function measureStarts(ground: Ground) {
  const executors = await prepareExecutors(join(ground.directory, "executors"));
  const bareStarts: number[] = [];
  for (let round = 0; round < startRounds; round++) {
    bareStarts.push((await spawnBare(executors, await makeFolder(executors))).startMs);
  }
  const measure = async (isolation: Isolation) => {
    const { publicKey, privateKey } = generateKeyPairSync("ed25519");
    const agentId = createId("agt", new Date(), randomBytes);
    await insertAgents(ground, [{ agentId, publicKey: encodePublicKey(publicKey) }]);
    const target = ground.targets("c", "destroy").at(-1);
    const agent = startProgram<RealAgent>("real-agent.ts");
    try {
      await agent.ask("start", {
        directory: join(ground.directory, `agent-${isolation}`),
        serverUrl: ground.serverUrl,
        identity: {
          version: 1,
          agentId,
          privateKey: encodePrivateKey(privateKey),
          ...ground.trust,
        },
        executors,
        slots,
        isolation,
      });
      const durations: number[] = [];
      for (let round = 0; target && round < startRounds; round++) {
        const [queued] = await ground.server.ask("queue", [{ ...target, component: `s${round}` }]);
        // The next one only when nothing of this one is left to do.
        await until(() => isEnded(ground, queued?.id ?? ""), "the executor's outcome", 60_000);
        const starts = await agent.ask("starts");
        durations.push(...starts.map(({ takenAtMs, startedAtMs }) => startedAtMs - takenAtMs));
        await sleep(50);
      }
      return durations;
    } finally {
      await agent.stop();
    }
  };
  const plain = await measure("plain");
  const hasBubblewrap = await chooseIsolation("bubblewrap", {
    PATH: process.env.PATH ?? "/usr/bin:/bin",
  }).then(
    () => true,
    () => false,
  );
  return { bareStarts, plain, bubblewrap: hasBubblewrap ? await measure("bubblewrap") : [] };
}

function report(
  { agents }: BenchOptions,
  found: {
    bare: number[];
    idle: Receipts;
    busy: Receipts;
    loopMaxMs: number;
    bareStarts: number[];
    plain: number[];
    bubblewrap: number[];
  },
): Report {
  const baseline = spread(found.bare).p99;
  const ratioOf = (receipts: Receipts) => spread(receipts.fromCommitted).p99 / baseline;
  const [idle, busy] = [ratioOf(found.idle), ratioOf(found.busy)];
  const added = spread(found.plain).p50 - spread(found.bareStarts).p50;
  const addedByBubblewrap = spread(found.bubblewrap).p50 - spread(found.bareStarts).p50;
  return {
    rows: [
      ["baseline: bare commit + bare push", formatSpread(found.bare)],
      ["receipt, idle, from the job's commit", formatSpread(found.idle.fromCommitted)],
      ["  from the moment that commit was sent", formatSpread(found.idle.fromCommit)],
      ["  p99 / baseline's", `${idle.toFixed(2)} (aim: at most ${idleAim})`],
      [
        `receipt, ${agents} agents, ${busyPerSecond} jobs/s`,
        formatSpread(found.busy.fromCommitted),
      ],
      ["  from the moment that commit was sent", formatSpread(found.busy.fromCommit)],
      ["  p99 / baseline's", `${busy.toFixed(2)} (aim: at most ${busyAim})`],
      ["  server's event loop, latest", formatMs(found.loopMaxMs)],
      ["baseline: bare spawn → first instruction", formatSpread(found.bareStarts)],
      ["start, plain launcher: offer taken → first instruction", formatSpread(found.plain)],
      ["  p50 above bare spawn", `${formatMs(added)} (aim: at most ${startAimMs} ms)`],
      [
        "start, bubblewrap",
        found.bubblewrap.length > 0
          ? `${formatSpread(found.bubblewrap)}, p50 ${formatMs(addedByBubblewrap)} above bare spawn`
          : "not measured: bubblewrap does not run here",
      ],
    ],
    aims: [
      {
        name: "receipt p99 idle / baseline",
        value: round(idle),
        aim: `<= ${idleAim}`,
        ok: idle <= idleAim,
      },
      {
        name: `receipt p99 at ${agents} agents / baseline`,
        value: round(busy),
        aim: `<= ${busyAim}`,
        ok: busy <= busyAim,
      },
      {
        name: "start p50 - bare spawn (ms)",
        value: round(added),
        aim: `<= ${startAimMs}`,
        ok: added <= startAimMs,
      },
    ],
  };
}
