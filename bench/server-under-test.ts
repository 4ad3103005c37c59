/**
 * The real server in a process of its own, with a door for the measurement: jobs are queued here, by
 * the server's own functions, because wake-ups are given in the process that committed.
 */
import { randomBytes } from "node:crypto";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { pino } from "pino";
import type { AppId, InstallId } from "../src/model/ids.ts";
import type { Operation } from "../src/model/job.ts";
import type { ServerContext } from "../src/server/context.ts";
import { deployInstall } from "../src/server/installs.ts";
import { type NewJob, queueJobs } from "../src/server/job-machine.ts";
import { createJob } from "../src/server/manifest.ts";
import { ServerConfig, startServer } from "../src/server/start.ts";
import { migrationsDirectory } from "../test/database.ts";
import { answer, clockMs } from "./exchange.ts";

/** A job without effect: a component that exists only in its manifest. */
export interface Target {
  readonly appId: AppId;
  readonly installId: InstallId;
  readonly component: string;
  readonly operation: Operation;
}

export interface QueuedJob {
  readonly id: string;
  /** When `commit` was sent, and when its answer had come. */
  readonly commitAtMs: number;
  readonly committedAtMs: number;
}

export interface Usage {
  readonly atMs: number;
  readonly rssBytes: number;
  readonly heapBytes: number;
  readonly cpuMs: number;
  /** How late the event loop was at worst, and in the middle, since the last time. */
  readonly loopMaxMs: number;
  readonly loopP50Ms: number;
}

let server: { context: ServerContext; stop: () => Promise<void> } | null = null;
const delay = monitorEventLoopDelay({ resolution: 5 });

function context(): ServerContext {
  if (!server) throw new Error("Expected `start` first.");
  return server.context;
}

async function start(config: unknown): Promise<{ rootPublicKey: string; keysetNumber: number }> {
  server = await startServer(ServerConfig.parse(config), {
    migrationsDirectory,
    log: pino({ level: "error" }, pino.destination(2)),
    now: () => new Date(),
    random: randomBytes,
  });
  const [keyset] = await context().database.query<{ number: number }>(
    "select max(number) as number from keysets",
  );
  return { rootPublicKey: context().keys.rootPublicKey, keysetNumber: keyset?.number ?? 1 };
}

/** Queues all targets in one transaction, and wakes their queues as the server does. */
async function queue(targets: readonly Target[]): Promise<QueuedJob[]> {
  const jobs: NewJob[] = [];
  for (const target of targets) jobs.push(await jobOf(target));
  let commitAtMs = 0;
  await context().database.transaction("server", async (sql) => {
    await queueJobs(sql, jobs);
    commitAtMs = clockMs();
  });
  const committedAtMs = clockMs();
  for (const name of new Set(jobs.map((job) => job.queue))) context().wake.notify(`jobs:${name}`);
  return jobs.map(({ id }) => ({ id, commitAtMs, committedAtMs }));
}

/** One after the other at a steady rate; a late one is not left out. */
async function queueSteadily({
  targets,
  everyMs,
}: {
  targets: readonly Target[];
  everyMs: number;
}): Promise<QueuedJob[]> {
  const begin = clockMs();
  const queued: Promise<QueuedJob[]>[] = [];
  for (const [index, target] of targets.entries()) {
    await sleep(Math.max(0, begin + index * everyMs - clockMs()));
    queued.push(queue([target]));
  }
  return (await Promise.all(queued)).flat();
}

function jobOf({ appId, installId, component, operation }: Target): Promise<NewJob> {
  return createJob(
    context(),
    {
      operation,
      app: { id: appId, name: "bench" },
      install: { id: installId, name: installId },
      plugin: "noop",
      component: { name: component, type: "noop", config: {} },
      sandbox: null,
      source: null,
      artifact: null,
      inputs: { region: "eu-central-1", size: "small" },
      dependencies: {},
      approval: null,
      fingerprint: null,
    },
    { deploy: 1, generation: 1 },
  );
}

/** After a collection of garbage, so that only what is held counts. */
async function usage(collect: boolean): Promise<Usage> {
  if (collect) {
    for (let round = 0; round < 4; round++) {
      globalThis.gc?.();
      await sleep(50);
    }
  }
  const { rss, heapUsed, external, arrayBuffers } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  const [loopMaxMs, loopP50Ms] = [delay.max / 1e6, delay.percentile(50) / 1e6];
  delay.reset();
  const heapBytes = heapUsed + external + arrayBuffers;
  const cpuMs = (user + system) / 1000;
  return { atMs: clockMs(), rssBytes: rss, heapBytes, cpuMs, loopMaxMs, loopP50Ms };
}

/** A person deploys these installs, one after the other. */
async function deploy(installs: readonly string[]): Promise<void> {
  for (const name of installs) await deployInstall(context(), "server", name, null);
}

/** Every connection to the database tells what it has touched: it does so at a statement's end. */
async function flushStatistics(): Promise<void> {
  await sleep(1100);
  const one = () => context().database.query("select pg_sleep(0.05)");
  await Promise.all(Array.from({ length: 64 }, one));
}

const table = { start, queue, queueSteadily, deploy, usage, flushStatistics };
export type ServerUnderTest = typeof table;

if (process.send) {
  delay.enable();
  answer(table, async () => server?.stop());
}
