/**
 * One round: a changed configuration goes to every install while faults strike at seeded points,
 * counted in transitions of jobs and not in time; then everything must come to rest, and be right.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { InstallView, SyncAnswer } from "../../src/protocol/api.ts";
import { appName, describeApp } from "./app.ts";
import { type FaultKind, strike } from "./faults.ts";
import { createInjury } from "./injury.ts";
import { checkRound, type RoundFacts } from "./invariants.ts";
import type { Product } from "./product.ts";
import { createRandom } from "./random.ts";
import { createTimeline, type Timeline } from "./timeline.ts";

export interface RoundOptions {
  readonly seed: string;
  readonly round: number;
  readonly components: number;
  readonly kinds: readonly FaultKind[];
  readonly faultsMax: number;
}

export interface RoundResult {
  readonly violations: readonly string[];
  readonly faults: readonly string[];
  readonly jobs: number;
  readonly epochsBeyondFirst: number;
  readonly ms: number;
  readonly timeline: Timeline;
}

const settleMs = 240_000;
const pollMs = 100;
const lookMs = 30;
/** Of a job without trouble: queued, offered, running, ended. */
const transitionsPerJob = 4;

/** Plays the round and judges it. */
export async function playRound(product: Product, options: RoundOptions): Promise<RoundResult> {
  const startedMs = performance.now();
  const timeline = createTimeline();
  const random = createRandom(`${options.seed}/${options.round}/faults`);
  const record = createInjury(product, random);
  const config = describeApp({ ...options, ledger: product.ledger });
  const before = await product.database.query<{ now: string; event: string }>(
    "select clock_timestamp()::text as now, coalesce(max(id), 0)::text as event from events",
  );
  const facts = { since: before[0]?.now ?? "", sinceEvent: before[0]?.event ?? "0" };

  const over = new AbortController();
  const struck: string[] = [];
  const points = chooseFaults(options, random);
  const hit = async (kind: FaultKind) => {
    const injection = await strike(kind, record.injury);
    timeline.add(injection ? `FAULT ${kind}: ${injection.text}` : `(no target for ${kind})`);
    if (injection) struck.push(kind);
  };
  const striking = strikeAtPoints(product, facts.sinceEvent, points, hit, over.signal);
  let unsettled: string | null = null;
  try {
    const answer = await product.api.post<SyncAnswer>("/api/apps/sync", { config, sources: {} });
    const release = await awaitRelease(product, answer);
    for (const { name } of product.installs) {
      await product.api.post(`/api/installs/${name}/deploy`, { release });
    }
    unsettled = await settle(product, release, timeline, record.cancelled);
  } catch (error) {
    unsettled = error instanceof Error ? (error.stack ?? error.message) : String(error);
  }
  over.abort();
  await striking;
  await record.healed();
  const round: RoundFacts = {
    ...facts,
    config,
    round: options.round,
    killed: record.killed,
    cancelled: record.cancelled,
  };
  const judged = await checkRound(product, round, unsettled);
  await timeline.addEvents(product.database, facts.sinceEvent);
  return { ...judged, faults: struck, ms: performance.now() - startedMs, timeline };
}

function chooseFaults(
  { components, kinds, faultsMax }: RoundOptions,
  random: ReturnType<typeof createRandom>,
): { at: number; kind: FaultKind }[] {
  const expected = components * (1 + 5 * 2) * transitionsPerJob;
  const count = kinds.length === 0 ? 0 : random.between(Math.ceil(faultsMax / 2), faultsMax);
  return Array.from({ length: count }, () => ({
    at: random.between(1, Math.floor(expected * 0.9)),
    kind: random.pick(kinds),
  })).sort((a, b) => a.at - b.at);
}

async function strikeAtPoints(
  product: Product,
  sinceEvent: string,
  points: readonly { at: number; kind: FaultKind }[],
  hit: (kind: FaultKind) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const waiting = [...points];
  while (waiting.length > 0 && !signal.aborted) {
    const rows = await product.database.tryQuery<{ count: number }>(
      "select count(*)::int as count from events where id > $1 and kind like 'job.%'",
      [sinceEvent],
    );
    const count = rows?.[0]?.count ?? 0;
    while (waiting[0] && waiting[0].at <= count) {
      const next = waiting.shift();
      if (next) await hit(next.kind);
    }
    await delay(lookMs);
  }
}

/** The release of the configuration, once everything is built. */
export async function awaitRelease(product: Product, answer: SyncAnswer): Promise<number> {
  if (answer.releaseNumber !== null) return answer.releaseNumber;
  const deadline = performance.now() + settleMs;
  for (;;) {
    const { releases } = await product.api.get<{
      releases: { number: number; configNumber: number }[];
    }>(`/api/releases?app=${appName}`);
    const found = releases.find(({ configNumber }) => configNumber === answer.configNumber);
    if (found) return found.number;
    const failed = await product.database.query<{ id: string; outcome: object }>(
      `select jobs.id, jobs.outcome from config_builds join builds on builds.id = build_id
       join jobs on jobs.id = job_id where config_builds.config_number = $1 and builds.state = 'failed'`,
      [answer.configNumber],
    );
    if (failed.length > 0) throw new Error(`Builds failed: ${JSON.stringify(failed)}`);
    if (performance.now() > deadline) throw new Error("The builds did not end in time.");
    await delay(pollMs);
  }
}

/** Null when every install is at rest at the release, else what is not. */
async function settle(
  product: Product,
  release: number,
  timeline: Timeline,
  cancelled: ReadonlySet<string>,
): Promise<string | null> {
  const deadline = performance.now() + settleMs;
  const waiting = new Set(product.installs.map(({ name }) => name));
  for (;;) {
    for (const name of waiting) {
      const view = await product.api.get<InstallView>(`/api/installs/${name}`);
      const failed = view.components.filter(({ state }) => state === "failed");
      if (performance.now() > deadline) return describeUnsettled(view);
      // At rest: nothing more happens by itself.
      if (!view.settled || view.releaseNumber !== release) continue;
      if (failed.length === 0) {
        waiting.delete(name);
        timeline.add(`${name} is settled at release ${release}`);
        continue;
      }
      const isOurs = failed.every(({ jobId }) => jobId !== null && cancelled.has(jobId));
      if (!isOurs) return describeUnsettled(view);
      timeline.add(`${name} is deployed again: jobs of it were cancelled`);
      await product.api.post(`/api/installs/${name}/deploy`, { release });
    }
    if (waiting.size === 0) return null;
    await delay(pollMs);
  }
}

function describeUnsettled({ name, components, releaseNumber, agent }: InstallView): string {
  const open = components
    .filter(({ state }) => state !== "active")
    .map(({ name: component, state, reason }) => `${component} ${state} ${reason ?? ""}`);
  return `${name} is not settled (release ${releaseNumber}, agent ${JSON.stringify(agent)}): ${open.join("; ")}`;
}
