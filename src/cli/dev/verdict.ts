/** Whether what was deployed really runs, and what this run has done. */
import type { InstallView, JobView } from "../../protocol/api.ts";
import type { ApiClient } from "../api-client.ts";
import { judgeInstall } from "../install-judgement.ts";
import { reportFailure } from "../install-wait.ts";
import { reportJob } from "../job-report.ts";
import { type AppAnswer, askApp, findAddresses } from "./app-address.ts";
import { findUnready } from "./install-folders.ts";
import type { Layout } from "./layout.ts";
import type { Settled } from "./settle-install.ts";
import type { Stopwatch } from "./stopwatch.ts";
import { waitFor } from "./wait-for.ts";

const processesTimeoutMs = 60_000;
const jobPageLimit = 200;
const jobPagesMax = 50;

export interface Judged {
  readonly verdict: { ok: boolean; reason: string | null; answers: readonly AppAnswer[] };
  readonly failure: readonly string[];
}

/** Whether it really runs: no failed job, every process healthy, and, where asked, an answer over HTTP. */
export async function judgeRun(
  client: ApiClient,
  layout: Layout,
  { install, failedBuilds }: Settled,
  around: { stopwatch: Stopwatch; signal: AbortSignal; ask: boolean },
): Promise<Judged> {
  const { stopwatch, signal } = around;
  const bad = (reason: string, failure: readonly string[], answers: readonly AppAnswer[] = []) => ({
    verdict: { ok: false, reason, answers },
    failure,
  });
  if (failedBuilds.length > 0) {
    const reports = await Promise.all(failedBuilds.map(({ jobId }) => reportJob(client, jobId)));
    return bad(
      `the build of ${failedBuilds.map(({ component }) => component).join(", ")} failed`,
      reports.flat(),
    );
  }
  if (judgeInstall(install) === "failed") {
    const failure = await reportFailure(client, install);
    return bad(failure[0] ?? `${install.name} failed`, failure);
  }
  const unready = await stopwatch.time("processes", () => awaitProcesses(layout, install, signal));
  if (unready.size > 0) {
    const lines = [...unready].map(([name, why]) => `${name}: ${why}`);
    return bad(`not every process is healthy: ${lines.join("; ")}`, lines);
  }
  if (!around.ask) return { verdict: { ok: true, reason: null, answers: [] }, failure: [] };
  const answers = await stopwatch.time("answer", () =>
    Promise.all(findAddresses(install).map((address) => askApp(address, signal))),
  );
  const silent = answers.filter(({ ok }) => !ok);
  const lines = silent.map(
    ({ component, url, path, said }) => `${component} at ${url}${path}: ${said}`,
  );
  if (silent.length > 0) return bad(`the app does not answer: ${lines.join("; ")}`, lines, answers);
  return { verdict: { ok: true, reason: null, answers }, failure: [] };
}

/** Empty when every process is healthy; otherwise what is not, once time is up. */
async function awaitProcesses(
  layout: Layout,
  install: InstallView,
  signal: AbortSignal,
): Promise<Map<string, string>> {
  const look = () => findUnready(layout.installs, install.id);
  const healthy = await waitFor(async () => ((await look()).size === 0 ? true : null), {
    timeoutMs: processesTimeoutMs,
    signal,
  });
  return healthy ? new Map() : look();
}

/** Jobs made since a time, newest first in the server's answer. */
export async function jobsSince(client: ApiClient, since: Date): Promise<JobView[]> {
  const made: JobView[] = [];
  let after: string | undefined;
  for (let page = 0; page < jobPagesMax; page++) {
    const { jobs, next } = await client.jobs({ limit: jobPageLimit, after });
    const recent = jobs.filter((job) => Date.parse(job.createdAt) >= since.getTime());
    made.push(...recent);
    if (next === null || recent.length < jobs.length) break;
    after = next;
  }
  return made;
}
