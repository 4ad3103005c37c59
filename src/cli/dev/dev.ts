/**
 * `landfall dev`: from nothing to a running app on one machine, and everything kept running after that.
 *
 *   app read ─> port free ─> data folder locked ─> programs ─┬─> platform (PostgreSQL, registry, server, build agent)
 *                                                            └─> supervisors of the installs that are there
 *   platform ─> sync ─> install ─> builds, release, deploy ─> processes healthy ─> ready ─> (stays) ─> stop
 *
 * Invariants: bad input and a port in use are told before anything is changed; whatever was started is
 * stopped, in order, however this ends; a supervisor and its app go with Ctrl-C, but not with our death.
 */
import { mkdir } from "node:fs/promises";
import { resolve } from "node:path";
import { Fault } from "../../model/fault.ts";
import { type ApiClient, createApiClient } from "../api-client.ts";
import type { Profile } from "../api-request.ts";
import type { CliContext } from "../context.ts";
import { openDataFolder } from "../data-folder.ts";
import { readProfile } from "../profile.ts";
import type { ProgressDisplay } from "../progress-display.ts";
import { findAppDirectory, packSources, type ReadApp, readAppDirectory } from "../sync-app.ts";
import { requireFreePort } from "./free-port.ts";
import { type Layout, layoutOf, logPath } from "./layout.ts";
import { moveInstalls } from "./move-installs.ts";
import { createPlatform, type Platform } from "./platform.ts";
import { settleApp } from "./settle-app.ts";
import { createStopwatch } from "./stopwatch.ts";
import type { Run } from "./summary.ts";
import { keepSupervisors, type Supervisors } from "./supervisors.ts";
import { jobsSince, judgeRun } from "./verdict.ts";

export interface DevOptions {
  readonly data: string;
  readonly app: string;
  /** Undefined: the one of the last time, or else the usual one. */
  readonly port: number | undefined;
  readonly install: string;
}

/** Everything that runs, for whoever stops it. */
export interface DevParts {
  platform: Platform | null;
  supervisors: Supervisors | null;
  closeFolder: (() => Promise<void>) | null;
}

export interface DevReady {
  readonly profile: Profile;
  readonly client: ApiClient;
  readonly layout: Layout;
  readonly app: string;
  readonly run: Run;
  /** What to show of a failure. */
  readonly failure: readonly string[];
}

export const usualPort = 7070;
const supervisorsTimeoutMs = 25_000;

/** Brings everything up; what was started is in `parts` even when this throws. */
export async function bringUp(
  context: CliContext,
  options: DevOptions,
  control: { parts: DevParts; display: ProgressDisplay; signal: AbortSignal; ask: boolean },
): Promise<DevReady> {
  const { parts, display, signal } = control;
  const startedAt = context.now();
  const rows = context.terminal.interactive;
  const stopwatch = createStopwatch(() => performance.now(), display, { rows });
  let deaths = 0;
  const tell = (message: string) => {
    deaths++;
    display.say(message);
  };
  const app = await readInput(context, options);
  const data = resolve(context.cwd, options.data);
  const port = await requireFreePort(options.port ?? (await portOfLastTime(layoutOf(data))));

  const folder = await openDataFolder(data);
  parts.closeFolder = () => folder.close();
  const layout = layoutOf(folder.path);
  await makeFolders(layout);
  const programs = await stopwatch.time("programs", () => context.preparePrograms(layout.programs));
  await moveInstalls(layout.installs, `http://127.0.0.1:${port}`);
  const { environment } = context;
  parts.supervisors = keepSupervisors({
    installs: layout.installs,
    command: programs.supervisor,
    environment,
    logOf: (id) => logPath(layout, `supervisor-${id}`),
    tell,
  });
  parts.platform = createPlatform({
    layout,
    programs,
    port,
    environment,
    stopwatch,
    signal,
    databaseUrl: context.databaseUrl,
    tell,
  });
  // Packed while the platform starts: nobody needs it earlier.
  const [profile, packed] = await Promise.all([parts.platform.start(), packSources(app)]);
  const client = createApiClient(profile);
  const settled = await settleApp(client, packed, options.install, {
    stopwatch,
    display,
    signal,
    since: startedAt,
    deaths: () => deaths,
    synced: parts.platform.startBuildAgent,
  });
  const judged = await judgeRun(client, layout, settled, { stopwatch, signal, ask: control.ask });
  display.finish();
  const jobs = await jobsSince(client, startedAt);
  const readyMs = performance.now();
  const phases = stopwatch.phases();
  const run: Run = { ...judged.verdict, install: settled.install, readyMs, jobs, phases };
  return { profile, client, layout, app: app.config.name, run, failure: judged.failure };
}

/** Stops everything, in order; `waitingFor` hears what is being waited for. */
export async function takeDown(
  parts: DevParts,
  waitingFor: (name: string) => void,
): Promise<string[]> {
  waitingFor("the build agent and the installs' supervisors");
  // Neither needs the other, and both need the server until they are done.
  const [, left] = await Promise.all([
    parts.platform?.stopBuildAgent(),
    parts.supervisors?.stop(supervisorsTimeoutMs),
  ]);
  await parts.platform?.stopRest(waitingFor);
  await parts.closeFolder?.();
  return left ?? [];
}

async function readInput(context: CliContext, options: DevOptions): Promise<ReadApp> {
  if (!/^[a-z0-9][a-z0-9-]{0,62}$/.test(options.install)) {
    throw new Fault(
      "invalid",
      `Expected a name of lower-case letters, digits and dashes for \`--install\`, got \`${options.install}\`.`,
    );
  }
  const app = await readAppDirectory(await findAppDirectory(options.app, context.cwd), context.cwd);
  if (app.warnings !== "") context.terminal.note(`${app.warnings}\n`);
  return app;
}

async function portOfLastTime(layout: Layout): Promise<number> {
  const profile = await readProfile(layout.server.profile).catch(() => null);
  return Number(profile ? new URL(profile.url).port : "") || usualPort;
}

async function makeFolders(layout: Layout): Promise<void> {
  const folders = [
    layout.server.directory,
    layout.registry.directory,
    layout.buildAgent.directory,
    layout.installs,
    layout.logs,
  ];
  for (const folder of folders) await mkdir(folder, { recursive: true, mode: 0o700 });
}
