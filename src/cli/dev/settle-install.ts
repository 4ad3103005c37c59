/**
 * From a synced app to an install at rest on its newest release: created when it is not there, deployed
 * when it is behind or had failed, left alone when there is nothing to do.
 *
 * Invariant: on a settled install whose app has not changed, this asks the server for nothing but its view.
 */
import { isFault } from "../../model/fault.ts";
import type { BuildView, InstallView, SyncAnswer } from "../../protocol/api.ts";
import type { ApiClient } from "../api-client.ts";
import { isStale, judgeInstall, needsDeploy } from "../install-judgement.ts";
import { awaitInstall, tellPause } from "../install-wait.ts";
import type { ProgressDisplay } from "../progress-display.ts";
import { rowsOfInstall } from "../progress-rows.ts";
import { watchLive } from "../watch.ts";

/** A restarting server is waited for: dev itself starts it again. */
const triesMax = 200;

export interface Settled {
  readonly install: InstallView;
  readonly failedBuilds: readonly BuildView[];
}

/** The install of this name, created when there is none; one that is being deleted is waited for first. */
export async function ensureInstall(
  client: ApiClient,
  app: string,
  name: string,
  options: { display: ProgressDisplay; signal: AbortSignal },
): Promise<InstallView> {
  const found = await findInstall(client, name);
  if (found !== null && found.state !== "deleting") return found;
  if (found !== null) {
    options.display.say(`\`${name}\` is still being deleted; it is created anew after that.`);
    const left = await awaitInstall(client, found, { ...options, triesMax });
    if (left !== null) return left;
  }
  return client.createInstall({ app, name, inputs: {} });
}

/** Waits until the builds are there and the install is at rest on their release. */
export async function settleInstall(
  client: ApiClient,
  answer: SyncAnswer,
  begun: InstallView,
  options: { display: ProgressDisplay; signal: AbortSignal },
): Promise<Settled> {
  const { display, signal } = options;
  let builds: readonly BuildView[] = answer.builds;
  let install = begun;
  let released = false;
  let isPauseTold = false;
  // On the newest release, or on its way there; then its view is to be believed.
  const release = async () => {
    const number = answer.releaseNumber ?? (await releaseOf(client, answer));
    if (number === null) return;
    released = true;
    install = await client.install(begun.name);
    if (needsDeploy(install, number)) install = await client.deploy(begun.name);
  };
  const isOver = () =>
    released ? judgeInstall(install) !== "working" : builds.some(({ state }) => state === "failed");

  if (builds.every(({ state }) => state === "succeeded")) await release();
  if (released && isOver()) {
    display.show(rowsOfInstall(install));
    return { install, failedBuilds: [] };
  }
  for await (const view of watchLive(client, { signal, triesMax })) {
    const seen =
      view.installs.find(({ name }) => name === begun.name) ?? (await client.install(begun.name));
    if (isStale(seen, install)) continue;
    install = seen;
    if (!released) {
      builds = await refreshBuilds(client, answer, view.builds);
      if (builds.every(({ state }) => state === "succeeded")) await release();
    }
    display.show(rowsOfInstall(install));
    if (!isPauseTold) isPauseTold = tellPause(display, install);
    if (isOver() && !builds.some(({ state }) => state === "running")) break;
  }
  signal.throwIfAborted();
  return { install, failedBuilds: builds.filter(({ state }) => state === "failed") };
}

async function findInstall(client: ApiClient, name: string): Promise<InstallView | null> {
  try {
    return await client.install(name);
  } catch (error) {
    if (isFault(error, "not_found")) return null;
    throw error;
  }
}

async function releaseOf(client: ApiClient, answer: SyncAnswer): Promise<number | null> {
  const releases = await client.releases(answer.app);
  return releases.find(({ configNumber }) => configNumber === answer.configNumber)?.number ?? null;
}

/** The builds of this configuration as they are now; the live view holds the newest only. */
async function refreshBuilds(
  client: ApiClient,
  answer: SyncAnswer,
  newest: readonly BuildView[],
): Promise<readonly BuildView[]> {
  const seen = answer.builds.flatMap(({ id }) => newest.find((build) => build.id === id) ?? []);
  if (seen.length === answer.builds.length) return seen;
  const all = await client.builds(answer.app);
  return answer.builds.map((build) => all.find(({ id }) => id === build.id) ?? build);
}
