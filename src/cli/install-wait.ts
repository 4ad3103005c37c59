/** Waiting until an install has come to rest, with progress for whoever watches. */
import { isFault } from "../model/fault.ts";
import type { InstallView } from "../protocol/api.ts";
import type { ApiClient } from "./api-client.ts";
import { describePause, failedComponents, isStale, judgeInstall } from "./install-judgement.ts";
import { reportJob } from "./job-report.ts";
import type { ProgressDisplay } from "./progress-display.ts";
import { rowsOfInstall } from "./progress-rows.ts";
import { watchLive } from "./watch.ts";

const triesMax = 20;

/** The install at rest; null when it is gone. Ends early, with what was seen last, when the signal fires. */
export async function awaitInstall(
  client: ApiClient,
  begun: InstallView,
  options: {
    display: ProgressDisplay;
    signal: AbortSignal;
    triesMax?: number;
  },
): Promise<InstallView | null> {
  const { name } = begun;
  const tries = options.triesMax ?? triesMax;
  let last: InstallView | null = null;
  let isPauseTold = false;
  for await (const view of watchLive(client, { signal: options.signal, triesMax: tries })) {
    const install = view.installs.find((one) => one.name === name) ?? (await find(client, name));
    if (install === null || install.state === "deleted") return null;
    if (isStale(install, begun)) continue;
    last = install;
    if (!isPauseTold) isPauseTold = tellPause(options.display, install);
    options.display.show(rowsOfInstall(install));
    if (judgeInstall(install) !== "working") return install;
  }
  return last;
}

/** Says that a pause is what everybody waits for; false when there is none. */
export function tellPause(display: ProgressDisplay, install: InstallView): boolean {
  const line = describePause(install);
  if (line !== null) display.say(line);
  return line !== null;
}

/** The lines that say why an install failed: each failed component, and the end of its job's log. */
export async function reportFailure(client: ApiClient, install: InstallView): Promise<string[]> {
  const lines = install.reason === null ? [] : [`sandbox: ${install.reason}`];
  if (install.reason !== null) {
    const { jobs } = await client.jobs({ install: install.name, state: "failed", limit: 20 });
    const job = jobs.find(({ component }) => component === null);
    if (job) lines.push(...(await reportJob(client, job.id)));
  }
  for (const { name, reason, jobId } of failedComponents(install)) {
    lines.push(
      ...(jobId === null ? [`${name}: ${reason ?? "failed"}`] : await reportJob(client, jobId)),
    );
  }
  return lines;
}

async function find(client: ApiClient, name: string): Promise<InstallView | null> {
  try {
    return await client.install(name);
  } catch (error) {
    if (isFault(error, "not_found")) return null;
    throw error;
  }
}
