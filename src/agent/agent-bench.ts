/**
 * The bench on which the agent's own tests stand: a gateway, a folder, and the agent as a child
 * process, bundled as it is shipped. Each test has its own; afterwards nothing of it is left.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { build } from "esbuild";
import type { JsonObject } from "../model/json.ts";
import { jobFolderName } from "../protocol/job-folder.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { createGatewayDouble, type GatewayDouble, until } from "./gateway-double.ts";
import { type JournalOptions, openJournal } from "./journal.ts";
import { findTree, signal } from "./process-tree.ts";
import { createProxyDouble, type ProxyDouble, type ProxyDoubleOptions } from "./proxy-double.ts";

const source = join(import.meta.dirname, "..", "..", "bin", "agent.ts");
const executor = join(import.meta.dirname, "executor-double.ts");
const concurrency = 3;
const ignore = () => undefined;

/** For a journal that a test opens by itself. */
export const quiet: JournalOptions = {
  logger: { info: ignore, warn: ignore, error: ignore },
  clock: () => performance.now(),
  now: () => new Date(),
};

export type Bench = Awaited<ReturnType<typeof createBench>>;

interface AgentProcess {
  readonly child: ChildProcess;
  readonly output: string[];
}

/** Collects tests, each on its own bench, and declares them side by side. */
export function describeAgent(name: string, declare: (testAgent: TestAgent) => void): void {
  describe(name, { concurrency }, () => {
    let folder = "";
    before(async () => {
      folder = await mkdtemp(join(tmpdir(), "landfall-bundle-"));
      await bundleAgent(join(folder, "agent.mjs"));
    });
    after(() => rm(folder, { recursive: true, force: true }));
    declare((sentence, act, options = {}) =>
      test(sentence, async () => {
        const bench = await createBench(join(folder, "agent.mjs"), options);
        try {
          await act(bench);
        } finally {
          await bench.close();
        }
      }),
    );
  });
}
export type TestAgent = (
  sentence: string,
  act: (bench: Bench) => Promise<void>,
  options?: BenchOptions,
) => void;

interface BenchOptions {
  /** The gateway speaks TLS with a certificate that nobody trusts by default. */
  readonly tls?: { readonly key: string; readonly cert: string };
}

async function createBench(program: string, { tls }: BenchOptions) {
  const gateway = await createGatewayDouble(tls ?? null);
  const directory = await realpath(await mkdtemp(join(tmpdir(), "landfall-agent-")));
  const agents: AgentProcess[] = [];
  const proxies: ProxyDouble[] = [];

  const welcomed = () => until(() => gateway.isWelcomed(), "a connection");
  const frames = (type: string) => gateway.frames.filter((frame) => frame.type === type);
  const folderOf = (job: JobKey) => join(directory, "agent", "jobs", nameOf(job));

  async function startAgent(
    options: {
      code?: string;
      slots?: number;
      sandbox?: string;
      exitWithParent?: boolean;
      serverUrl?: string;
      proxy?: string;
      caFile?: string;
      /** Another agent's folder beside the first. */
      folder?: string;
      variables?: { readonly [name: string]: string };
      spoolBytesMax?: number;
      executor?: readonly string[];
      /** The agent's folder is a file system of its own, so large, which only its processes see. */
      diskBytes?: number;
    } = {},
  ): Promise<AgentProcess> {
    const { code = gateway.code, folder = "agent", variables, diskBytes, ...rest } = options;
    const enrolmentFile = join(directory, "enrolment.json");
    const configFile = join(directory, `${folder}.json`);
    const none = { storeDirectory: null, registry: null, supervisorDirectory: null };
    const configuration = {
      serverUrl: gateway.url,
      directory: join(directory, folder),
      enrolmentFile,
      place: { ...none, installsDirectory: null, programs: null },
      executor: [process.execPath, executor],
      ...rest,
    };
    await writeFile(configFile, JSON.stringify(configuration));
    if (options.code || !existsSync(join(directory, folder, "identity.json"))) {
      await writeFile(enrolmentFile, JSON.stringify({ serverUrl: gateway.url, code }));
    }
    const onDisk = diskBytes ? await mountCommand(join(directory, folder), diskBytes) : [];
    const [command = "", ...args] = [...onDisk, process.execPath, program, "--config", configFile];
    const child = spawn(command, args, {
      stdio: ["pipe", "pipe", "pipe"],
      env: { PATH: process.env.PATH, ...variables },
    });
    const agent: AgentProcess = { child, output: [] };
    child.stdout.on("data", (text) => agent.output.push(String(text)));
    child.stderr.on("data", (text) => agent.output.push(String(text)));
    agents.push(agent);
    return agent;
  }

  return {
    gateway,
    directory,
    startAgent,
    welcomed,
    frames,
    folderOf,
    /** Offers a job on the connection that is there, or comes. */
    async offer(config: JsonObject, options: Parameters<GatewayDouble["offer"]>[1] = {}) {
      await welcomed();
      return gateway.offer(config, options);
    },
    codes: () =>
      gateway.frames.flatMap((frame) => (frame.type === "refused" ? [frame.code as string] : [])),
    /** What the agent itself kept of its refusals; it is killed for that. */
    async journaledRefusals(child: ChildProcess): Promise<string[]> {
      await kill(child);
      const journal = openJournal(join(directory, "agent", "journal.db"), quiet);
      const refusals = journal.refusals().map(({ code }) => code);
      journal.close();
      return refusals;
    },
    hasNoFolder: () => readdirSync(join(directory, "agent", "jobs")).length === 0,
    /** The executor as the host sees it: the innermost process of its tree. */
    executorOf(job: JobKey): number {
      const tree = findTree(nameOf(job), null);
      const innermost = tree.find(({ pid }) => !tree.some((other) => other.parentPid === pid));
      assert(innermost, "a running executor");
      return innermost.pid;
    },
    release: (job: JobKey) => writeFileSync(join(folderOf(job), "work", "release"), ""),
    /** A proxy in front of the gateway; it ends with the bench. */
    async startProxy(options: Omit<ProxyDoubleOptions, "targetPort"> = {}): Promise<ProxyDouble> {
      const proxy = await createProxyDouble({ ...options, targetPort: gateway.port });
      proxies.push(proxy);
      return proxy;
    },
    async close() {
      await Promise.all(agents.map(({ child }) => kill(child)));
      await Promise.all(proxies.map((proxy) => proxy.close()));
      await until(() => killNaming(directory) === 0, "the end of all executors");
      await gateway.close();
      await rm(directory, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** What stands before a command line so that its processes see a file system of this size there. */
async function mountCommand(path: string, sizeBytes: number): Promise<string[]> {
  await mkdir(path, { recursive: true });
  const user = process.getuid?.() === 0 ? [] : ["--map-root-user"];
  const mount = `mount -t tmpfs -o size=${sizeBytes} none "$0" && exec "$@"`;
  return ["unshare", ...user, "--mount", "sh", "-c", mount, path];
}

/** Kills what names this folder on its command line, whatever the agent believes; gives how many it found. */
function killNaming(directory: string): number {
  const pids = readdirSync("/proc")
    .map(Number)
    .filter((pid) => pid > 0 && commandLineOf(pid).includes(directory));
  for (const pid of pids) signal(pid, "SIGKILL");
  return pids.length;
}

function commandLineOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "latin1");
  } catch {
    return "";
  }
}

/** The name of a job's folder. */
export function nameOf({ jobId, epoch }: JobKey): string {
  return jobFolderName(jobId, epoch);
}

/** Kills with -9 and waits for the end. */
export async function kill(child: ChildProcess): Promise<void> {
  const exited = exitOf(child);
  child.kill("SIGKILL");
  await exited;
}

/** The exit code, once there is one; null for a killed process. */
export async function exitOf(child: ChildProcess): Promise<number | null> {
  await until(() => child.exitCode !== null || child.signalCode !== null, "the agent's end");
  return child.exitCode;
}

async function bundleAgent(outfile: string): Promise<void> {
  const require =
    'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);';
  await build({
    entryPoints: [source],
    bundle: true,
    platform: "node",
    format: "esm",
    outfile,
    banner: { js: require },
    logLevel: "error",
  });
}
