/**
 * Refused connections, as events: a few per agent and minute with the number of those left out, so that
 * whoever misbehaves is on record and cannot fill the record.
 */

import type { ServerContext } from "../context.ts";
import { recordEvent } from "../event-queue.ts";
import type { KnownAgent } from "./handshake.ts";

const windowMs = 60_000;
const refusalsPerWindow = 5;
/** Those who never said who they are share one count. */
const stranger = "unknown";

export interface RefusalLog {
  record(agent: KnownAgent | null, reason: string): void;
}

/** The log of one gateway. */
export function createRefusalLog(context: ServerContext): RefusalLog {
  let counts = new Map<string, number>();
  let leftOut = new Map<string, number>();
  let since = performance.now();
  return {
    record(agent, reason) {
      if (performance.now() - since > windowMs) {
        leftOut = new Map(
          [...counts]
            .filter(([, count]) => count > refusalsPerWindow)
            .map(([who, count]) => [who, count - refusalsPerWindow]),
        );
        counts = new Map();
        since = performance.now();
      }
      const who = agent?.id ?? stranger;
      const count = (counts.get(who) ?? 0) + 1;
      counts.set(who, count);
      if (count > refusalsPerWindow) return;
      const missed = leftOut.get(who);
      leftOut.delete(who);
      const data = { agent: agent?.id ?? null, reason, ...(missed ? { leftOut: missed } : {}) };
      recordEvent(context.database, {
        kind: "agent.refused",
        actor: agent ? `agent:${agent.id}` : "server",
        installId: agent?.install_id ?? null,
        data,
      }).catch((error: unknown) =>
        context.log.warn({ err: error, data }, "A refusal was not recorded"),
      );
    },
  };
}
