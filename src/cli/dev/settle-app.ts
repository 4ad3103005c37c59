/** From a packed app to an install at rest, through whatever was cut short before. */
import type { ApiClient } from "../api-client.ts";
import { failedComponents, judgeInstall } from "../install-judgement.ts";
import type { ProgressDisplay } from "../progress-display.ts";
import { type PackedApp, syncApp } from "../sync-app.ts";
import { ensureInstall, type Settled, settleInstall } from "./settle-install.ts";
import type { Stopwatch } from "./stopwatch.ts";

/** How often what was cut short is tried in one start. */
const attemptsMax = 3;

export interface SettleOptions {
  readonly stopwatch: Stopwatch;
  readonly display: ProgressDisplay;
  readonly signal: AbortSignal;
  /** When this run began. */
  readonly since: Date;
  /** How often one of our own programs has died in this run. */
  readonly deaths: () => number;
  /** Called when the server has the app: from now on there may be something to build. */
  readonly synced: () => Promise<void>;
}

/**
 * The install at rest. What failed only because something was killed (in the run before, or one of our own
 * programs in this one) is tried again, so that a start comes to the same end whatever happened to the last.
 */
export async function settleApp(
  client: ApiClient,
  packed: PackedApp,
  name: string,
  around: SettleOptions,
): Promise<Settled> {
  const { stopwatch, display } = around;
  for (let attempt = 1; ; attempt++) {
    const deaths = around.deaths();
    const { answer } = await stopwatch.time("sync", () => syncApp(client, packed));
    await around.synced();
    // Before the builds are there: the sandbox is made meanwhile.
    const begun = await ensureInstall(client, answer.app, name, around);
    const settled = await stopwatch.time("deploy", () =>
      settleInstall(client, answer, begun, around),
    );
    const failed = failedJobs(settled);
    if (failed === null || attempt >= attemptsMax) return settled;
    const disturbed = around.deaths() > deaths || (await isOlder(client, failed, around.since));
    if (!disturbed) return settled;
    display.say("What was cut short is tried again.");
  }
}

/** The jobs that a failure is due to, as far as they are known; null when nothing failed. */
function failedJobs({ install, failedBuilds }: Settled): string[] | null {
  if (failedBuilds.length === 0 && judgeInstall(install) !== "failed") return null;
  const components = failedComponents(install).flatMap(({ jobId }) => jobId ?? []);
  return [...failedBuilds.map(({ jobId }) => jobId), ...components];
}

async function isOlder(
  client: ApiClient,
  jobIds: readonly string[],
  since: Date,
): Promise<boolean> {
  const jobs = await Promise.all(jobIds.map((id) => client.job(id)));
  return jobs.some(({ createdAt }) => Date.parse(createdAt) < since.getTime());
}
