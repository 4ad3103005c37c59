/** `landfall sync`: hands an app directory to the server, and waits for its builds. */
import type { Command } from "commander";
import type { BuildView, SyncAnswer } from "../../protocol/api.ts";
import type { ApiClient } from "../api-client.ts";
import { awaitBuilds } from "../build-wait.ts";
import {
  type ClientOptions,
  openClient,
  printJson,
  printLines,
  withExamples,
  withJson,
  withServerOptions,
} from "../command-options.ts";
import type { CliContext } from "../context.ts";
import { exitCodes } from "../exit-code.ts";
import { reportJob } from "../job-report.ts";
import { createProgressDisplay, displayTarget } from "../progress-display.ts";
import { findAppDirectory, packApp, syncApp } from "../sync-app.ts";

type SyncOptions = ClientOptions & { wait: boolean };

const waitMs = 60 * 60 * 1000;

/** Adds the command. */
export function addSyncCommand(program: Command, context: CliContext): void {
  const command = program
    .command("sync")
    .description("hand an app directory to the server and build what has changed")
    .argument("[dir]", "the app directory", ".")
    .option("--no-wait", "do not wait for the builds");
  withExamples(withJson(withServerOptions(command)), [
    "sync",
    "sync examples/guestbook",
    "sync --no-wait --json",
  ]);
  command.action(async (dir: string, options: SyncOptions) => {
    await runSync(context, await findAppDirectory(dir, context.cwd), options);
  });
}

async function runSync(
  context: CliContext,
  directory: string,
  options: SyncOptions,
): Promise<void> {
  const { terminal } = context;
  const app = await packApp(directory, context.cwd);
  if (app.warnings !== "") terminal.note(`${app.warnings}\n`);
  const client = await openClient(context, options);
  const { answer, uploaded } = await syncApp(client, app);
  if (!options.json) {
    const what = answer.changed ? `configuration ${answer.configNumber}` : "nothing has changed";
    printLines(context, [
      `${answer.app}: ${what}, ${uploaded} of ${app.sources.size} sources uploaded`,
    ]);
  }
  const builds = options.wait
    ? await waitForBuilds(context, client, answer, options)
    : answer.builds;
  const releases = await client.releases(answer.app);
  const release = releases.find(({ configNumber }) => configNumber === answer.configNumber);
  const failed = builds.filter(({ state }) => state === "failed");
  if (failed.length > 0) context.exitWith(exitCodes.failed);
  if (options.json)
    return printJson(context, { ...answer, builds, releaseNumber: release?.number ?? null });
  await explainEnd(context, client, { app: answer.app, failed, release: release?.number ?? null });
}

async function waitForBuilds(
  context: CliContext,
  client: ApiClient,
  answer: SyncAnswer,
  options: SyncOptions,
): Promise<BuildView[]> {
  const display = createProgressDisplay(
    displayTarget(context.terminal, options.json === true),
    () => performance.now(),
  );
  try {
    return await awaitBuilds(client, answer, { display, signal: AbortSignal.timeout(waitMs) });
  } finally {
    display.finish();
  }
}

async function explainEnd(
  context: CliContext,
  client: ApiClient,
  end: { app: string; failed: readonly BuildView[]; release: number | null },
): Promise<void> {
  for (const { jobId } of end.failed) {
    context.terminal.note(`${(await reportJob(client, jobId)).join("\n")}\n`);
  }
  if (end.release !== null) {
    printLines(context, [
      `Release ${end.release} of ${end.app} is ready: \`landfall deploy INSTALL\`.`,
    ]);
  } else if (end.failed.length === 0) {
    printLines(context, [`The builds are under way: \`landfall builds --app ${end.app}\`.`]);
  }
}
