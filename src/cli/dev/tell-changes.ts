/** What changes while `dev` stays: one plain line for each component that reaches another state. */
import { setTimeout as delay } from "node:timers/promises";
import type { LiveView } from "../../protocol/api.ts";
import type { ApiClient } from "../api-client.ts";
import {
  advanceClock,
  describeChanges,
  describeRow,
  type ProgressRow,
  type RowClock,
  rowsOfInstall,
} from "../progress-rows.ts";
import { watchLive } from "../watch.ts";

const pauseMs = 1000;

/** Tells until the signal fires; a server that is away for long is waited for. */
export async function tellChanges(
  client: ApiClient,
  options: { signal: AbortSignal; tell: (line: string) => void },
): Promise<void> {
  const { signal } = options;
  let clock: RowClock = new Map();
  let told: ReadonlyMap<string, string> | null = null;
  while (!signal.aborted) {
    try {
      for await (const view of watchLive(client, { signal, triesMax: Number.POSITIVE_INFINITY })) {
        const rows = rowsOfAll(view);
        const nowMs = performance.now();
        clock = advanceClock(clock, rows, nowMs);
        // The first view is what was just shown.
        if (told) for (const line of describeChanges(told, rows, clock, nowMs)) options.tell(line);
        told = new Map(rows.map((row) => [row.name, describeRow(row)]));
      }
    } catch {
      // A view that cannot be understood, a token that was revoked: nothing to tell, nothing to stop for.
    }
    await delay(pauseMs, undefined, { signal }).catch(() => {});
  }
}

function rowsOfAll(view: LiveView): ProgressRow[] {
  return view.installs.flatMap((install) =>
    rowsOfInstall(install).map((row) => ({ ...row, name: `${install.name}/${row.name}` })),
  );
}
