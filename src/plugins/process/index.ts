/**
 * `process`: a program kept running by the install's supervisor.
 *
 * Everything is asked of the supervisor through its folder; the plugin starts nothing itself, so that
 * the process outlives this job, the agent and the server.
 */
import { cp, mkdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { replaceFile } from "../../files/replace-file.ts";
import { OperationFailure, type Plugin, type PluginContext } from "../../plugin/plugin.ts";
import { parseConfig, requireGiven } from "../../plugin/serve.ts";
import {
  DesiredProcess,
  type ProcessStatus,
  stoppedAsAsked,
  supervisorFolders,
} from "../../protocol/supervisor-folder.ts";
import { Config, dataDirectoryOf, describeChange, desiredProcess } from "./desired.ts";
import { readLogTail, readStatus, waitForStatus } from "./status.ts";

const healthyTimeoutMs = 60_000;
const stopTimeoutMs = 30_000;
const settleMs = 1000;
/** A process that was restarted this often while it was waited for will not come up. */
const restartsMax = 5;

export const plugin: Plugin = {
  sheet: {
    name: "process",
    needs: ["process"],
    operations: ["build", "plan", "apply", "destroy"],
  },
  operations: { build, plan, apply, destroy },
};

async function build({ request }: PluginContext): Promise<void> {
  const source = requireGiven(request.sourceDirectory, "sourceDirectory");
  await cp(source, requireGiven(request.outputDirectory, "outputDirectory"), {
    recursive: true,
    verbatimSymlinks: true,
  });
}

async function plan(context: PluginContext): Promise<void> {
  const { request } = context;
  const after = desired(context);
  const before = DesiredProcess.nullable().catch(null).parse(request.state);
  const lines = describeChange(before, after);
  context.givePlan({ plan: after, diff: lines.join("\n"), changes: lines.length > 0 });
}

async function apply(context: PluginContext): Promise<void> {
  const { request } = context;
  const directory = requireGiven(request.supervisorDirectory, "supervisorDirectory");
  const { name } = request.component;
  const process = DesiredProcess.parse(request.plan);
  await mkdir(dataDirectoryOf(directory, name), { recursive: true });
  const before = await readStatus(directory, name);
  await writeDesired(directory, name, process);
  context.log(`asked the supervisor for \`${process.command.join(" ")}\``);
  const restartsBefore = before?.revision === process.revision ? before.restarts : 0;
  const status = await waitForStatus(directory, name, {
    isDone: (current) => isUp(current, process) || isHopeless(current, process, restartsBefore),
    timeoutMs: timeToHealthMs(process),
    signal: context.signal,
    describe: (current) => describeFailure(directory, name, current, "in time"),
  });
  if (!isUp(status, process) || !(await staysUp(context, directory, process))) {
    throw new OperationFailure(await describeFailure(directory, name, status, "at all"));
  }
  context.saveState(process);
  if (status?.port) {
    context.giveOutput("url", `http://127.0.0.1:${status.port}`);
    context.giveOutput("port", status.port);
  }
}

/** De-provisions: the process, then its data folder too. */
async function destroy({ request, signal, log }: PluginContext): Promise<void> {
  const directory = requireGiven(request.supervisorDirectory, "supervisorDirectory");
  const { name } = request.component;
  await rm(join(directory, supervisorFolders.desired, `${name}.json`), { force: true });
  await waitForStatus(directory, name, {
    isDone: (status) => status === null || status.state === "stopped",
    timeoutMs: stopTimeoutMs,
    signal,
    describe: async (status) =>
      `Expected the supervisor to stop \`${name}\` within ${stopTimeoutMs} ms; it is still ${status?.state}. Is the supervisor running?`,
  });
  await rm(dataDirectoryOf(directory, name), { recursive: true, force: true });
  log(`\`${name}\` is stopped, and its data folder removed`);
}

function desired({ request }: PluginContext): DesiredProcess {
  const directory = requireGiven(request.supervisorDirectory, "supervisorDirectory");
  return desiredProcess(request, parseConfig(Config, request), {
    artifactDirectory: requireGiven(request.artifactDirectory, "artifactDirectory"),
    dataDirectory: dataDirectoryOf(directory, request.component.name),
    nodeDirectory: dirname(process.execPath),
  });
}

/** Without a health check, being alive is all that can be asked; a crash needs a moment to show. */
async function staysUp(
  { request, signal }: PluginContext,
  directory: string,
  process: DesiredProcess,
): Promise<boolean> {
  if (process.health) return true;
  const until = performance.now() + settleMs;
  const status = await waitForStatus(directory, request.component.name, {
    isDone: (current) => performance.now() > until || !isUp(current, process),
    timeoutMs: settleMs * 2,
    signal,
    describe: async () => "The process could not be watched.",
  });
  return isUp(status, process);
}

/** Slow health checks get the time that they need to speak at all. */
function timeToHealthMs({ health }: DesiredProcess): number {
  if (!health) return healthyTimeoutMs;
  return Math.max(healthyTimeoutMs, 2 * health.threshold * (health.intervalMs + health.timeoutMs));
}

function isUp(status: ProcessStatus | null, process: DesiredProcess): boolean {
  return status?.revision === process.revision && status.state === "healthy";
}

function isHopeless(
  status: ProcessStatus | null,
  process: DesiredProcess,
  restartsBefore: number,
): boolean {
  if (status?.revision !== process.revision) return false;
  // What the last supervisor stopped with itself is about to be started again by this one.
  const hasEnded = status.state === "stopped" && status.reason !== stoppedAsAsked;
  return hasEnded || status.restarts - restartsBefore >= restartsMax;
}

async function describeFailure(
  directory: string,
  name: string,
  status: ProcessStatus | null,
  when: string,
): Promise<string> {
  const tail = await readLogTail(directory, name);
  const state = status
    ? `${status.state}${status.reason ? ` (${status.reason})` : ""}`
    : "unknown to the supervisor";
  const log = tail ? ` Its last lines:\n${tail}` : " It printed nothing.";
  return `Expected \`${name}\` to become healthy, but it did not ${when}: it is ${state}.${log}`;
}

/** Written aside, flushed and renamed: the supervisor never sees a part of it. */
async function writeDesired(
  directory: string,
  name: string,
  process: DesiredProcess,
): Promise<void> {
  const folder = join(directory, supervisorFolders.desired);
  await mkdir(folder, { recursive: true });
  await replaceFile(join(folder, `${name}.json`), `${JSON.stringify(process)}\n`);
}
