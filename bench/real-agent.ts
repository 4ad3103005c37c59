/**
 * The real agent over real executors, in a process of its own; `bin/agent.ts` without the enrolment,
 * with the isolation that the measurement asks for. Its log tells when an offer was taken.
 */
import { mkdir, readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { type Agent, startAgent } from "../src/agent/agent.ts";
import type { Identity } from "../src/agent/identity.ts";
import type { Isolation } from "../src/agent/isolation.ts";
import { openJournal } from "../src/agent/journal.ts";
import type { Logger } from "../src/agent/log.ts";
import { createProcessLauncher } from "../src/agent/process-launcher.ts";
import { createRoute } from "../src/agent/route.ts";
import { answer, clockMs } from "./exchange.ts";
import { type ExecutorPlace, readStamp } from "./executors.ts";

let agent: Agent | null = null;
const launches: { job: string; atMs: number }[] = [];
const stamps = new Map<string, number>();

async function start({
  directory,
  serverUrl,
  identity,
  executors,
  slots,
  isolation,
}: {
  directory: string;
  serverUrl: string;
  identity: Identity;
  executors: ExecutorPlace;
  slots: number;
  isolation: Isolation;
}): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const logger: Logger = {
    info(message, fields) {
      if (message === "launching") launches.push({ job: String(fields?.job), atMs: clockMs() });
    },
    warn: (message, fields) => console.error(message, fields),
    error: (message, fields) => console.error(message, fields),
  };
  const clock = () => Number(process.hrtime.bigint() / 1_000_000n);
  const now = () => new Date();
  const journal = openJournal(join(directory, "journal.db"), { logger, clock, now });
  const readOnlyPaths = [dirname(process.execPath), dirname(executors.program)];
  const visible = { readOnlyPaths, writablePaths: [], agentDirectory: directory };
  agent = await startAgent({
    serverUrl,
    route: createRoute({ proxyFor: () => null, extraAuthorities: null }),
    enrolmentFile: undefined,
    directory,
    identity,
    journal,
    slots,
    place: executors.place,
    executor: [process.execPath, executors.program],
    launcher: createProcessLauncher({
      isolation,
      visible,
      lockDirectory: join(directory, "locks"),
    }),
    environment: { PATH: "/usr/local/bin:/usr/bin:/bin", LANG: "C.UTF-8" },
    logger,
    random: Math.random,
    clock,
    now,
  });
  // Folders go with the acknowledged outcome, so their stamps are collected while they are there.
  const jobs = join(directory, "jobs");
  setInterval(() => void collect(jobs), 20).unref();
}

async function collect(jobs: string): Promise<void> {
  for (const name of await readdir(jobs)) {
    if (stamps.has(name)) continue;
    const stamp = await readStamp(join(jobs, name));
    if (stamp !== null) stamps.set(name, stamp);
  }
}

/** Offers that were taken, with the first instruction of their executors where it has been seen; each is told once. */
function starts(): { jobId: string; takenAtMs: number; startedAtMs: number }[] {
  const seen = launches.filter(({ job }) => stamps.has(job));
  for (const launch of seen) launches.splice(launches.indexOf(launch), 1);
  return seen.map(({ job, atMs }) => ({
    jobId: job.split(".")[0] ?? "",
    takenAtMs: atMs,
    startedAtMs: stamps.get(job) ?? Number.NaN,
  }));
}

const table = { start, starts };
export type RealAgent = typeof table;

if (process.send) {
  answer(table, async () => {
    agent?.leave();
    await agent?.ended;
  });
}
