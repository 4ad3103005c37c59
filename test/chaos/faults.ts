/**
 * What can go wrong, each kind one function: it does its harm now, heals it later by itself where it
 * must be healed, and says what it did. No fault helps: what was killed is started again by the product.
 */
import { appendFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { replaceFile } from "../../src/files/replace-file.ts";
import type { Injection, Injury } from "./injury.ts";
import { type LiveProcess, liveProcesses, type ProcessKind, signal } from "./processes.ts";
import type { Install } from "./product.ts";

type Fault = (injury: Injury) => Promise<Injection | null>;

/** How often one job may lose its executor: its third loss would rightly fail it. */
const lossesMax = 2;

const faults = {
  "kill-server": (injury) => killProgram(injury, "server", null),
  "kill-postgres": killPostgres,
  "kill-agent": (injury) => killProgram(injury, "agent", anyInstall(injury).id),
  "kill-build-agent": (injury) => killProgram(injury, "agent", "build"),
  "kill-supervisor": (injury) => killProgram(injury, "supervisor", anyInstall(injury).id),
  "kill-registry": (injury) => killProgram(injury, "registry", anyInstall(injury).id),
  "kill-vendor-registry": (injury) => killProgram(injury, "registry", null),
  "kill-executor": (injury) => killExecutor(injury, ["executor"]),
  "kill-tree": (injury) => killExecutor(injury, ["shim", "isolation", "executor", "plugin"]),
  "kill-isolation": (injury) => killExecutor(injury, ["isolation"]),
  "kill-shim": (injury) => killExecutor(injury, ["shim"]),
  "kill-install": killInstall,
  blackout: (injury) => killEverything(injury),
  "stop-server": (injury) => stopProgram(injury, "server", null),
  "stop-agent": (injury) => stopProgram(injury, "agent", anyInstall(injury).id),
  "stop-executor": stopExecutor,
  cancel: cancelJob,
  pause: pauseInstall,
  replace: replaceAgent,
  cut: async (injury) => {
    const { name, proxy } = anyInstall(injury);
    proxy.cut();
    return told(`the connection of ${name} is cut`);
  },
  "cut-all": async ({ product }) => {
    for (const { proxy } of product.installs) proxy.cut();
    product.buildProxy.cut();
    return told("every connection is cut");
  },
  refuse: (injury) => forAWhile(injury, "is refused", ({ proxy }) => proxy.refuse()),
  hole: (injury) => forAWhile(injury, "is a black hole", ({ proxy }) => proxy.hole()),
  slow: (injury) =>
    forAWhile(injury, "is slow, in pieces", ({ proxy }) =>
      proxy.slow(injury.random.between(20, 400), injury.random.between(1, 200)),
    ),
  late: async (injury) => {
    const { name, proxy } = anyInstall(injury);
    const lateMs = injury.random.between(500, 3000);
    proxy.late(lateMs);
    return told(`the connection of ${name} is cut; what it sent comes ${lateMs} ms later`);
  },
} satisfies Record<string, Fault>;

/** Breaks the rules themselves, to show that it is seen. */
const tamper: Fault = async ({ product }) => {
  const forged = { phase: "overlap", operation: "apply", component: "c00", install: "north" };
  const [job] = await product.database.query<{ id: string }>(
    "select id from jobs order by created_at desc limit 1",
  );
  await appendFile(product.ledger, `${JSON.stringify({ ...forged, job: job?.id })}\n`);
  return told("the ledger says that two were alive at once");
};

export type FaultKind = keyof typeof faults | "tamper";
/** Those that the product must bear. */
export const faultKinds = Object.keys(faults) as FaultKind[];

/** Does it. */
export function strike(kind: FaultKind, injury: Injury): Promise<Injection | null> {
  return kind === "tamper" ? tamper(injury) : faults[kind](injury);
}

function told(text: string, jobs: readonly string[] = []): Injection {
  return { text, jobs };
}

function anyInstall({ product, random }: Injury): Install {
  return random.pick(product.installs);
}

function find(injury: Injury, kind: ProcessKind, place: string | null): LiveProcess | null {
  const all = liveProcesses(injury.product.data);
  return all.find((one) => one.kind === kind && one.place === place) ?? null;
}

async function killProgram(
  injury: Injury,
  kind: ProcessKind,
  place: string | null,
): Promise<Injection | null> {
  const found = find(injury, kind, place);
  if (!found) return null;
  signal(found.pid, "SIGKILL");
  return told(`${kind} of ${place ?? "the vendor"} killed (process ${found.pid})`);
}

async function killPostgres(injury: Injury): Promise<Injection | null> {
  const pid = injury.product.postgresPid();
  if (pid === null) return null;
  signal(pid, "SIGKILL");
  return told(`PostgreSQL's postmaster killed (process ${pid})`);
}

/** A job of an install or of the build agent that may lose its executor once more. */
function anyJob(injury: Injury): { jobFolder: string; processes: LiveProcess[] } | null {
  const running = liveProcesses(injury.product.data).filter(
    ({ jobFolder }) => jobFolder !== null && injury.lossesOf(jobFolder) < lossesMax,
  );
  const folders = [...new Set(running.map(({ jobFolder }) => jobFolder ?? ""))].sort();
  if (folders.length === 0) return null;
  const jobFolder = injury.random.pick(folders);
  return { jobFolder, processes: running.filter((one) => one.jobFolder === jobFolder) };
}

async function killExecutor(
  injury: Injury,
  kinds: readonly ProcessKind[],
): Promise<Injection | null> {
  const job = anyJob(injury);
  const doomed = job?.processes.filter(({ kind }) => kinds.includes(kind)) ?? [];
  if (!job || doomed.length === 0) return null;
  injury.countLoss(job.jobFolder);
  for (const { pid } of doomed) signal(pid, "SIGKILL");
  const what = doomed.map(({ kind, pid }) => `${kind} ${pid}`).join(", ");
  return told(`of ${job.jobFolder} killed: ${what}`, [job.jobFolder]);
}

/** A person changes their mind about a job of an install; the round deploys again later. */
async function cancelJob({ product, random, cancelled }: Injury): Promise<Injection | null> {
  const jobs = await product.database.tryQuery<{ id: string; state: string }>(
    `select id, state from jobs where outcome is null and component is not null and install_id is not null
     order by id`,
  );
  if (!jobs || jobs.length === 0) return null;
  const job = random.pick(jobs);
  cancelled(job.id);
  // Not waited for: the server may be away, and the round goes on.
  void product.api.post(`/api/jobs/${job.id}/cancel`).catch(() => {});
  return told(`${job.id} (${job.state}) is to be cancelled`);
}

/** A person pauses an install, and lets it go on after a while. */
async function pauseInstall(injury: Injury): Promise<Injection> {
  const { name } = anyInstall(injury);
  const { api } = injury.product;
  const forMs = injury.random.between(500, 5000);
  injury.heal(async () => {
    await api.post(`/api/installs/${name}/pause`, { reason: "chaos" });
    await delay(forMs);
    await api.post(`/api/installs/${name}/resume`);
  });
  return told(`${name} is paused for ${forMs} ms`);
}

/** A person replaces an install's agent; the new one begins in the folder of the old one. */
async function replaceAgent(injury: Injury): Promise<Injection> {
  const { name, directory, proxy } = anyInstall(injury);
  const { api } = injury.product;
  injury.heal(async () => {
    const { code } = await api.post<{ code: string }>(`/api/installs/${name}/replace-agent`);
    const enrolment = JSON.stringify({ code, serverUrl: proxy.url });
    await replaceFile(join(directory, "agent", "enrolment.json"), enrolment);
  });
  return told(`the agent of ${name} is replaced`);
}

function jobFoldersOf(processes: readonly LiveProcess[]): string[] {
  return [...new Set(processes.flatMap(({ jobFolder }) => jobFolder ?? []))];
}

/** As if the machine of an install had lost power; null where a job would lose its last attempt. */
async function killInstall(injury: Injury): Promise<Injection | null> {
  const install = anyInstall(injury);
  return killAll(injury, `everything of ${install.name}`, ({ place }) => place === install.id);
}

async function killEverything(injury: Injury): Promise<Injection | null> {
  return killAll(injury, "everything", () => true);
}

async function killAll(
  injury: Injury,
  what: string,
  isDoomed: (process: LiveProcess) => boolean,
): Promise<Injection | null> {
  const doomed = liveProcesses(injury.product.data).filter(isDoomed);
  const jobs = jobFoldersOf(doomed);
  if (doomed.length === 0 || jobs.some((job) => injury.lossesOf(job) >= lossesMax)) return null;
  for (const job of jobs) injury.countLoss(job);
  for (const { pid } of doomed) signal(pid, "SIGKILL");
  return told(`${what} killed (${doomed.length} processes)`, jobs);
}

async function stopProgram(
  injury: Injury,
  kind: ProcessKind,
  place: string | null,
): Promise<Injection | null> {
  const found = find(injury, kind, place);
  return found ? freeze(injury, [found], `${kind} of ${place ?? "the vendor"}`) : null;
}

async function stopExecutor(injury: Injury): Promise<Injection | null> {
  const job = anyJob(injury);
  return job ? freeze(injury, job.processes, `executor of ${job.jobFolder}`) : null;
}

function freeze(injury: Injury, processes: readonly LiveProcess[], what: string): Injection {
  const forMs = injury.random.between(200, 6000);
  for (const { pid } of processes) signal(pid, "SIGSTOP");
  injury.heal(async () => {
    await delay(forMs);
    for (const { pid } of processes) signal(pid, "SIGCONT");
  });
  return told(
    `${what} stopped for ${forMs} ms (process ${processes.map(({ pid }) => pid).join(", ")})`,
  );
}

async function forAWhile(
  injury: Injury,
  what: string,
  harm: (install: Install) => void,
): Promise<Injection> {
  const install = anyInstall(injury);
  const forMs = injury.random.between(200, 8000);
  harm(install);
  injury.heal(async () => {
    await delay(forMs);
    install.proxy.heal();
  });
  return told(`the way of ${install.name} ${what} for ${forMs} ms`);
}
