/** Waiting for builds, with progress for whoever watches. */
import type { BuildView, SyncAnswer } from "../protocol/api.ts";
import type { ApiClient } from "./api-client.ts";
import type { ProgressDisplay } from "./progress-display.ts";
import { rowsOfBuilds } from "./progress-rows.ts";
import { watchLive } from "./watch.ts";

const triesMax = 20;

/** The builds of a configuration once none of them runs any more. */
export async function awaitBuilds(
  client: ApiClient,
  answer: SyncAnswer,
  options: { display: ProgressDisplay | null; signal: AbortSignal; triesMax?: number },
): Promise<BuildView[]> {
  const ids = new Set(answer.builds.map(({ id }) => id));
  let builds = answer.builds;
  const running = () => builds.some(({ state }) => state === "running");
  if (!running()) return builds;
  options.display?.show(rowsOfBuilds(builds));
  const tries = options.triesMax ?? triesMax;
  for await (const view of watchLive(client, { signal: options.signal, triesMax: tries })) {
    const seen = view.builds.filter(({ id }) => ids.has(id));
    // The live view holds the newest builds only.
    builds = seen.length === ids.size ? seen : await refresh(client, answer.app, builds);
    options.display?.show(rowsOfBuilds(builds));
    if (!running()) break;
  }
  return builds;
}

async function refresh(
  client: ApiClient,
  app: string,
  known: readonly BuildView[],
): Promise<BuildView[]> {
  const all = new Map((await client.builds(app)).map((build) => [build.id, build]));
  return known.map((build) => all.get(build.id) ?? build);
}
