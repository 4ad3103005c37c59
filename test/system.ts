/**
 * The whole product as a person starts it: `landfall dev` as a real process on a data folder of its
 * own. Scenarios look at it from outside: its lines, its API, its processes, its files.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { globSync, readFileSync, readlinkSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { InstallView } from "../src/protocol/api.ts";
import { readProcess } from "../src/protocol/process-identity.ts";
import { projectRoot } from "./promises.ts";

export const node = [process.execPath, "--disable-warning=ExperimentalWarning"] as const;
export const landfallProgram = join(projectRoot, "bin/landfall.mjs");
export const installName = "demo";

const readyMs = 90_000;
const stopMs = 40_000;

export interface Summary {
  readonly ok: boolean;
  readonly ready_ms: number;
  readonly reason: string | null;
  readonly components: readonly {
    readonly name: string;
    readonly state: string;
    readonly reason?: string;
  }[];
  readonly jobs: number;
  readonly artifacts: number;
  readonly bytes_copied: number;
  readonly phases: Readonly<Record<string, number>>;
}

export interface SystemOptions {
  readonly data: string;
  readonly port: number;
  readonly app?: string;
  readonly environment?: NodeJS.ProcessEnv;
  readonly uid?: number;
  /** A command line that runs the rest of its arguments in another way. */
  readonly through?: readonly string[];
}

export interface System {
  readonly data: string;
  readonly url: string;
  readonly child: ChildProcess;
  output(): string;
  /** Waits until the product says that it is ready. */
  ready(): Promise<void>;
  /** Asks the server's API with the first person's token. */
  api<Answer>(path: string, init?: RequestInit): Promise<Answer>;
  install(): Promise<InstallView>;
  /** Ctrl-C, and the end of it. */
  stop(): Promise<number | null>;
}

/** A temporary folder and a free port; everything of it is gone when the test is over. */
export async function createPlace(): Promise<{
  data: string;
  port: number;
  remove(): Promise<void>;
}> {
  const data = await mkdtemp(join(tmpdir(), "lf-"));
  return {
    data,
    port: await freePort(),
    async remove() {
      for (const { pid } of processesOf(data)) killProcess(pid, "SIGKILL");
      await until(() => processesOf(data).length === 0, "the processes of the test are gone");
      await rm(data, { recursive: true, force: true });
    },
  };
}

/** Starts `landfall dev` and leaves it running. */
export function startSystem(options: SystemOptions): System {
  const child = spawnDev(options, []);
  let text = "";
  child.stdout?.on("data", (chunk: Buffer) => (text += chunk.toString()));
  child.stderr?.on("data", (chunk: Buffer) => (text += chunk.toString()));
  const url = `http://127.0.0.1:${options.port}`;
  async function api<Answer>(path: string, init: RequestInit = {}): Promise<Answer> {
    const token = (await readFile(join(options.data, "server/admin-token"), "utf8")).trim();
    const headers = { ...init.headers, authorization: `Bearer ${token}` };
    const answer = await fetch(url + path, { ...init, headers });
    assert(answer.ok, `${path} answered ${answer.status}`);
    return (await answer.json()) as Answer;
  }
  return {
    data: options.data,
    url,
    child,
    output: () => text,
    api,
    install: () => api(`/api/installs/${installName}`),
    async ready() {
      await until(
        () => {
          assert.equal(child.exitCode, null, `landfall dev ended early:\n${text}`);
          return text.includes("Ctrl-C");
        },
        () => `landfall dev is ready; it said:\n${text}`,
        readyMs,
      );
    },
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
      const exited = once(child, "exit");
      child.kill("SIGINT");
      const timer = setTimeout(() => child.kill("SIGKILL"), stopMs);
      await exited;
      clearTimeout(timer);
      return child.exitCode;
    },
  };
}

/** Runs `landfall dev --once` to its end. */
export async function runOnce(
  options: SystemOptions,
): Promise<{ exitCode: number | null; output: string; summary: Summary }> {
  const child = spawnDev(options, ["--once"]);
  let output = "";
  child.stdout?.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr?.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const timer = setTimeout(() => child.kill("SIGKILL"), readyMs);
  await once(child, "close");
  clearTimeout(timer);
  const line = output.trimEnd().split("\n").at(-1) ?? "";
  assert(line.startsWith("{"), `the last line is JSON; it said:\n${output}`);
  return { exitCode: child.exitCode, output, summary: JSON.parse(line) as Summary };
}

/** Runs a command of the command line against a data folder. */
export async function runCommand(
  data: string,
  args: readonly string[],
): Promise<{ exitCode: number | null; output: string }> {
  const child = spawn(node[0], [node[1], landfallProgram, ...args, "--data", data], {
    env: { ...process.env, NO_COLOR: "1" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => (output += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()));
  await once(child, "close");
  return { exitCode: child.exitCode, output };
}

/** Every live process of a data folder: its path is in the arguments, the environment or the working folder. */
export function processesOf(data: string): { pid: number; command: string }[] {
  return globSync("/proc/[0-9]*").flatMap((folder) => {
    const pid = Number(folder.slice(6));
    if (pid === process.pid) return [];
    const command = readProc(`${folder}/cmdline`).replaceAll("\0", " ").trim();
    const belongs = [command, readProc(`${folder}/environ`), readLink(`${folder}/cwd`)].some(
      (text) => text.includes(data),
    );
    return belongs && readProcess(pid) ? [{ pid, command }] : [];
  });
}

/** The pid of the one process of a data folder whose command matches. */
export function findProcess(data: string, pattern: RegExp): number | null {
  return processesOf(data).find(({ command }) => pattern.test(command))?.pid ?? null;
}

export function killProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It was gone already.
  }
}

/** Waits for a condition, never for a time. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string | (() => string),
  timeoutMs = 30_000,
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > deadline) {
      assert.fail(`Expected within ${timeoutMs} ms: ${typeof what === "string" ? what : what()}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  assert(address && typeof address === "object");
  return address.port;
}

function spawnDev(
  { data, port, app, environment, uid, through = [] }: SystemOptions,
  flags: readonly string[],
): ChildProcess {
  const place = ["--data", data, "--port", String(port), ...(app ? ["--app", app] : [])];
  const [program = "", ...args] = [...through, ...node, landfallProgram, "dev", ...flags, ...place];
  return spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: environment ?? process.env,
    cwd: tmpdir(),
    ...(uid === undefined ? {} : { uid, gid: uid }),
  });
}

function readLink(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}

function readProc(path: string): string {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return "";
  }
}
