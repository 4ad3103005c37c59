/**
 * Many simulated agents in one process, and bare WebSocket clients beside them for the baselines.
 * Their public keys go straight into the table `agents`: enrolment is not what is measured here.
 */
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Identity } from "../src/agent/identity.ts";
import { createId } from "../src/model/ids.ts";
import { digestOf } from "../src/model/json.ts";
import { encodePrivateKey, encodePublicKey } from "../src/protocol/signed-document.ts";
import { type BareClient, createBareClient } from "./bare-client.ts";
import { answer, clockMs } from "./exchange.ts";
import { createSimulatedAgent, type Observer, type SimulatedAgent } from "./simulated-agent.ts";

const connectsAtOnce = 200;
const refusalsKept = 5;

const agents: SimulatedAgent[] = [];
const bareClients: BareClient[] = [];
const identities: Omit<Identity, "rootPublicKey" | "keysetNumber">[] = [];
const launches = new Map<string, { atMs: number; count: number }>();
const refusals: string[] = [];
let refusedCount = 0;
let endedCount = 0;
let welcomes = 0;
let lastWelcomeAtMs = 0;
let holds = false;
let givesPlans = false;
const succeeded = { status: "succeeded" as const };
const digest = digestOf("a plan");
const planned = {
  ...succeeded,
  plan: {
    planDigest: digest,
    diffDigest: digest,
    baseDigest: digest,
    approvalDigest: digest,
    changes: true,
    diff: "nothing",
  },
};

const observer: Observer = {
  welcomed() {
    welcomes++;
    lastWelcomeAtMs = clockMs();
  },
  launched(jobId, atMs) {
    const known = launches.get(jobId);
    if (known) known.count++;
    else launches.set(jobId, { atMs, count: 1 });
  },
  ended() {
    endedCount++;
  },
  refused(reason) {
    refusedCount++;
    if (refusals.length < refusalsKept) refusals.push(reason);
  },
  holdsJobs: () => holds,
  outcomeOf: (operation) => (givesPlans && operation === "plan" ? planned : succeeded),
};

/** New identities; gives what the server must know of them. */
function create(count: number): { agentId: string; publicKey: string }[] {
  return Array.from({ length: count }, () => {
    const { publicKey, privateKey } = generateKeyPairSync("ed25519");
    const agentId = createId("agt", new Date(), randomBytes);
    identities.push({ version: 1, agentId, privateKey: encodePrivateKey(privateKey) });
    return { agentId, publicKey: encodePublicKey(publicKey) };
  });
}

interface ConnectOptions {
  readonly serverUrl: string;
  readonly rootPublicKey: string;
  readonly keysetNumber: number;
  readonly slots: number;
  readonly timeoutMs: number;
}

/** Connects all that were created since, a few hundred at a time, and waits for their welcome. */
function connect(options: ConnectOptions): Promise<{ welcomed: number }> {
  return connectThese(identities.slice(agents.length), options);
}

/** Connects some of those that were created, by their numbers. */
function connectChosen(
  options: ConnectOptions & { chosen: readonly number[] },
): Promise<{ welcomed: number }> {
  const { chosen } = options;
  return connectThese(
    identities.filter((_, index) => chosen.includes(index)),
    options,
  );
}

async function connectThese(
  those: typeof identities,
  { serverUrl, rootPublicKey, keysetNumber, slots, timeoutMs }: ConnectOptions,
): Promise<{ welcomed: number }> {
  const deadline = clockMs() + timeoutMs;
  for (const identity of those) {
    const whole = { ...identity, rootPublicKey, keysetNumber };
    const agent = createSimulatedAgent(serverUrl, whole, slots, observer);
    agents.push(agent);
    agent.connect();
    while (agents.length - countWelcomed() >= connectsAtOnce && clockMs() < deadline)
      await sleep(2);
  }
  while (countWelcomed() < agents.length && clockMs() < deadline) await sleep(10);
  return { welcomed: countWelcomed() };
}

function countWelcomed(): number {
  return agents.reduce((sum, agent) => sum + Number(agent.isWelcomed()), 0);
}

/** Cuts every connection at once; gives how long it took until all were welcomed again. */
async function storm(timeoutMs: number): Promise<{ ms: number; welcomed: number }> {
  const begin = clockMs();
  welcomes = 0;
  for (const agent of agents) agent.cut();
  while (clockMs() < begin + timeoutMs) {
    await sleep(10);
    if (welcomes >= agents.length && countWelcomed() === agents.length) break;
  }
  return { ms: lastWelcomeAtMs - begin, welcomed: countWelcomed() };
}

/** While true, accepted jobs stay under way. */
function hold(value: boolean): void {
  holds = value;
  if (!value) for (const agent of agents) agent.finishAll();
}

/** While true, a plan is one that can be approved; otherwise it is a job without effect. */
function givePlans(value: boolean): void {
  givesPlans = value;
}

function report() {
  return {
    launches: [...launches].map(([jobId, { atMs, count }]) => ({ jobId, atMs, count })),
    launched: launches.size,
    ended: endedCount,
    refused: refusedCount,
    refusals,
  };
}

function forgetReport(): void {
  launches.clear();
  refusals.length = 0;
  [refusedCount, endedCount] = [0, 0];
}

function progress(): { launched: number; ended: number; welcomed: number } {
  return { launched: launches.size, ended: endedCount, welcomed: countWelcomed() };
}

/** Bare clients: the same jitter and the same heartbeat, and nothing else. */
async function connectBare(options: { url: string; count: number; heartbeatMs: number }) {
  for (let index = 0; index < options.count; index++) {
    const client = createBareClient(options.url, options.heartbeatMs);
    bareClients.push(client);
    client.connect();
    while (bareClients.length - countBare() >= connectsAtOnce) await sleep(2);
  }
  while (countBare() < bareClients.length) await sleep(5);
}

function countBare(): number {
  return bareClients.reduce((sum, client) => sum + Number(client.isOpen()), 0);
}

async function stormBare(timeoutMs: number): Promise<{ ms: number; open: number }> {
  const begin = clockMs();
  for (const client of bareClients) client.cut();
  await sleep(0);
  while (countBare() < bareClients.length && clockMs() < begin + timeoutMs) await sleep(10);
  return { ms: clockMs() - begin, open: countBare() };
}

/** When each push came, by its number. */
function bareReceipts(): { number: number; atMs: number }[] {
  return bareClients.flatMap((client) => client.receipts.splice(0));
}

function closeAll(): void {
  for (const agent of agents.splice(0)) agent.close();
  for (const client of bareClients.splice(0)) client.close();
  identities.length = 0;
}

const table = {
  create,
  connect,
  connectChosen,
  storm,
  hold,
  givePlans,
  report,
  forgetReport,
  progress,
  connectBare,
  stormBare,
  bareReceipts,
  closeAll,
};
export type SimulatedAgents = typeof table;

if (process.send) answer(table);
