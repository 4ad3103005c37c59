/**
 * A real supervisor in a folder of its own, for tests: started, killed and asked as a stranger would do it.
 * Whatever a test does, nothing of the folder is alive after `clean`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type DesiredProcess, ProcessStatus } from "../protocol/supervisor-folder.ts";
import { markPrefix, type Sighting, sendSignal, sightProcesses } from "./process-mark.ts";

const program = fileURLToPath(new URL("../../bin/supervisor.ts", import.meta.url));
/** Only a failing test waits so long; a busy machine must not fail one. */
const waitMs = 60_000;
const pauseMs = 5;

/** A web server in one line; answers with its pid. */
export const webServer = `
  const http = require("node:http");
  http.createServer((_, answer) => answer.end(String(process.pid)))
    .listen(Number(process.env.PORT), "127.0.0.1");
`;

export const httpCheck = { http: "/", intervalMs: 50, timeoutMs: 20_000, threshold: 3 } as const;

export type SupervisorFixture = ReturnType<typeof createSupervisorFixture>;

/** A folder with no supervisor yet. */
export function createSupervisorFixture() {
  const directory = realpathSync(mkdtempSync(join(tmpdir(), "landfall-supervisor-")));
  const running: ChildProcess[] = [];
  let printed = "";
  mkdirSync(join(directory, "desired"));

  /** Starts a supervisor; it has taken over once it says so in its log. */
  async function start(): Promise<ChildProcess> {
    const child = launch();
    await until(() =>
      readLog().includes(`"supervisor started","directory":"${directory}","pid":${child.pid}`),
    );
    return child;
  }

  function launch(): ChildProcess {
    const child = spawn(process.execPath, [program, "--directory", directory], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    for (const output of [child.stdout, child.stderr]) {
      output?.on("data", (text: Buffer) => {
        printed += text;
      });
    }
    running.push(child);
    return child;
  }

  /** What all supervisors of this folder printed so far. */
  function readLog(): string {
    return printed;
  }

  /** Asks for a process; what is not said is a web server on a port of the supervisor's choice. */
  function want(name: string, given: Partial<DesiredProcess> = {}): void {
    const desired: DesiredProcess = {
      version: 1,
      revision: "1",
      command: [process.execPath, "-e", webServer],
      directory,
      environment: {},
      port: 0,
      health: httpCheck,
      restart: "always",
      stopSignal: "SIGTERM",
      stopGraceMs: 2000,
      ...given,
    };
    writeFileSync(join(directory, "desired", `.${name}.tmp`), JSON.stringify(desired));
    renameSync(
      join(directory, "desired", `.${name}.tmp`),
      join(directory, "desired", `${name}.json`),
    );
  }

  function unwant(name: string): void {
    rmSync(join(directory, "desired", `${name}.json`));
  }

  function status(name: string): ProcessStatus | null {
    const text = readText(join(directory, "status", `${name}.json`));
    return text === null ? null : ProcessStatus.parse(JSON.parse(text));
  }

  /** The first status that is as wished; the last one seen is told when none comes. */
  async function statusWhen(
    name: string,
    isWished: (status: ProcessStatus) => boolean,
  ): Promise<ProcessStatus & { pid: number }> {
    let last: ProcessStatus | null = null;
    await until(
      () => {
        last = status(name);
        return last !== null && isWished(last);
      },
      () => `status of ${name}: ${JSON.stringify(last)}\n${readLog()}`,
    );
    const found = last as ProcessStatus | null;
    if (found === null) throw new Error("unreachable");
    return { ...found, pid: found.process?.pid ?? 0 };
  }

  function healthy(name: string) {
    return statusWhen(name, ({ state }) => state === "healthy");
  }

  function marked(): Sighting[] {
    return sightProcesses(markPrefix(directory)).filter((one) => one.name !== null);
  }

  async function clean(): Promise<void> {
    for (const child of running) child.kill("SIGKILL");
    await until(() => {
      for (const { pid } of marked()) sendSignal(pid, "SIGKILL");
      return marked().length === 0;
    });
    rmSync(directory, { recursive: true, force: true });
  }

  return {
    directory,
    start,
    launch,
    readLog,
    want,
    unwant,
    status,
    statusWhen,
    healthy,
    marked,
    clean,
  };
}

/** Waits until the condition holds, a bounded time. */
export async function until(
  isMet: () => boolean,
  describe = () => "condition not met",
): Promise<void> {
  const deadline = performance.now() + waitMs;
  while (!isMet()) {
    if (performance.now() > deadline) throw new Error(`Waited ${waitMs} ms in vain: ${describe()}`);
    await setTimeout(pauseMs);
  }
}

/** Ends a process by a signal and tells how it ended. */
export async function endBy(child: ChildProcess, signal: NodeJS.Signals): Promise<number | null> {
  child.kill(signal);
  await until(() => child.exitCode !== null || child.signalCode !== null);
  return child.exitCode;
}

function readText(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return null;
  }
}
