/**
 * One supervisor per local install: started when its sandbox is there, started again when it dies,
 * stopped when the sandbox is gone. One that still runs from an earlier `dev` is adopted as it is.
 *
 * Invariant: a supervisor belongs to no `dev`: it has its own session and no pipe, so that the app stays
 * up whatever happens to the one that started it.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, open } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { describeError } from "../../model/fault.ts";
import { type InstallFolder, lookAtInstalls, supervisorDirectory } from "./install-folders.ts";
import { pauseAfter } from "./kept-program.ts";
import { waitFor } from "./wait-for.ts";

/** What is remembered of the supervisor that was started for an install. */
export interface StartedSupervisor {
  readonly startedMs: number;
  /** False once its process has ended. */
  readonly running: boolean;
  readonly deaths: number;
}

export type SupervisorStep =
  | { readonly id: string; readonly step: "start" }
  | { readonly id: string; readonly step: "stop"; readonly pid: number };

/** What has to be done so that exactly the installs with a sandbox have a supervisor; pure. */
export function planSupervisors(
  folders: readonly InstallFolder[],
  started: ReadonlyMap<string, StartedSupervisor>,
  nowMs: number,
): SupervisorStep[] {
  return folders.flatMap((folder): SupervisorStep[] => {
    const { id, provisioned, supervisor } = folder;
    if (!provisioned) return supervisor ? [{ id, step: "stop", pid: supervisor.pid }] : [];
    if (supervisor) return [];
    const last = started.get(id);
    // Started, but it has not written its record yet.
    if (last?.running) return [];
    if (last && nowMs - last.startedMs < pauseAfter(last.deaths)) return [];
    return [{ id, step: "start" }];
  });
}

export interface SupervisorOptions {
  readonly installs: string;
  readonly command: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly logOf: (id: string) => string;
  readonly tell: (message: string) => void;
}

export interface Supervisors {
  /** Stops looking, and every supervisor with all that it keeps; names those that would not end. */
  stop(timeoutMs: number): Promise<string[]>;
}

const lookMs = 100;
const healthyMs = 30_000;

/** Looks at the installs' folders from now on, and acts. */
export function keepSupervisors(options: SupervisorOptions): Supervisors {
  const stopping = new AbortController();
  const started = new Map<string, StartedSupervisor>();
  /** Installs whose supervisor was seen alive, by whomever it was started. */
  const seen = new Set<string>();
  const looking = (async () => {
    while (!stopping.signal.aborted) {
      try {
        const folders = await lookAtInstalls(options.installs);
        if (stopping.signal.aborted) return;
        for (const { id, supervisor } of folders) if (supervisor) seen.add(id);
        for (const step of planSupervisors(folders, started, performance.now())) {
          if (step.step === "stop") {
            seen.delete(step.id);
            end(step.pid);
            continue;
          }
          if (seen.has(step.id) || started.has(step.id)) {
            options.tell(`The supervisor of ${step.id} ended; it is started again.`);
          }
          await startSupervisor(options, started, step.id);
        }
      } catch (error) {
        options.tell(`A supervisor could not be started: ${describeError(error)}`);
      }
      await delay(lookMs, undefined, { signal: stopping.signal }).catch(() => {});
    }
  })();
  return {
    async stop(timeoutMs) {
      stopping.abort();
      await looking;
      const asked = new Set<number>();
      const left = async () => {
        const alive = (await lookAtInstalls(options.installs)).filter((one) => one.supervisor);
        for (const { supervisor } of alive) {
          // One that was only just started writes its record after the first look.
          if (supervisor && !asked.has(supervisor.pid)) end(supervisor.pid);
          if (supervisor) asked.add(supervisor.pid);
        }
        const starting = started
          .entries()
          .filter(([, one]) => one.running)
          .map(([id]) => id);
        return [...new Set([...alive.map(({ id }) => id), ...starting])];
      };
      const gone = await waitFor(async () => ((await left()).length === 0 ? true : null), {
        timeoutMs,
      });
      return gone ? [] : await left();
    },
  };
}

async function startSupervisor(
  options: SupervisorOptions,
  started: Map<string, StartedSupervisor>,
  id: string,
): Promise<void> {
  const before = started.get(id);
  const now = performance.now();
  const quick = before !== undefined && now - before.startedMs < healthyMs;
  const deaths = quick ? before.deaths + 1 : 1;
  started.set(id, { startedMs: now, running: false, deaths });
  const directory = supervisorDirectory(options.installs, id);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const [file = "", ...args] = options.command;
  const log = await open(options.logOf(id), "a", 0o600);
  try {
    const child = spawn(file, [...args, "--directory", directory], {
      detached: true,
      env: { ...options.environment },
      stdio: ["ignore", log.fd, log.fd],
    });
    child.once("exit", () => started.set(id, { startedMs: now, running: false, deaths }));
    await once(child, "spawn");
    child.unref();
    const running = child.exitCode === null && child.signalCode === null;
    started.set(id, { startedMs: now, running, deaths });
  } finally {
    await log.close();
  }
}

function end(pid: number): void {
  try {
    process.kill(pid, "SIGTERM");
  } catch {
    // Gone already.
  }
}
