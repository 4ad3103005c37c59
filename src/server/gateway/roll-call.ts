/**
 * Heartbeats of all connections of this server, written together: who was heard, whose leases go on,
 * who is gone. A heartbeat costs no statement of its own.
 *
 * Invariant: every write is guarded by the connection it came over, so a superseded or revoked agent
 * renews nothing, and is found out by the statement that would have done it.
 */
import type { AgentId } from "../../model/ids.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import type { ServerContext } from "../context.ts";
import { extendLeases, type HeldJob, renewLeases } from "../job-machine.ts";
import type { GatewayLimits } from "./limits.ts";

/** What an agent tells of itself in its hello. */
export interface AgentTraits {
  readonly protocol: number;
  readonly slots: number | null;
  readonly version: string | null;
}

export interface RollCallEntry {
  readonly agentId: AgentId;
  readonly connection: string;
  readonly traits?: AgentTraits;
}

export interface RollCall {
  heard(entry: RollCallEntry): void;
  renew(agentId: AgentId, keys: readonly JobKey[]): void;
  gone(entry: RollCallEntry): void;
  /** Writes what is left. */
  stop(): Promise<void>;
}

/** The roll call of one gateway. `onMissing` hears of connections that are not their agent's any more. */
export function createRollCall(
  context: ServerContext,
  limits: Pick<GatewayLimits, "seenMs" | "leasesMs">,
  onMissing: (connection: string) => void,
): RollCall {
  let present = new Map<string, RollCallEntry>();
  let left: RollCallEntry[] = [];
  let leases = new Map<string, HeldJob>();

  async function writeSeen(): Promise<void> {
    const entries = [...present.values()];
    present = new Map();
    if (entries.length > 0) for (const id of await writePresent(context, entries)) onMissing(id);
    const gone = left;
    left = [];
    if (gone.length === 0) return;
    try {
      if (await writeGone(context, gone)) context.wake.notify("live");
    } catch (error) {
      left = [...gone, ...left];
      throw error;
    }
  }

  async function writeLeases(): Promise<void> {
    const held = [...leases.values()];
    leases = new Map();
    if (held.length === 0) return;
    const rest = Map.groupBy(await extendLeases(context.database, held), (job) => job.agentId);
    for (const [agentId, jobs] of rest) {
      await context.database.transaction(`agent:${agentId}`, (sql) =>
        renewLeases(sql, agentId, jobs),
      );
    }
    if (rest.size > 0) context.wake.notify("live");
  }

  const loops = [
    startWriting(context, limits.seenMs, writeSeen),
    startWriting(context, limits.leasesMs, writeLeases),
  ];
  return {
    heard(entry) {
      const known = present.get(entry.connection)?.traits;
      present.set(entry.connection, known && !entry.traits ? { ...entry, traits: known } : entry);
    },
    renew(agentId, keys) {
      for (const { jobId, epoch } of keys) leases.set(jobId, { jobId, epoch, agentId });
    },
    gone(entry) {
      present.delete(entry.connection);
      left.push(entry);
    },
    async stop() {
      for (const loop of loops) await loop.stop();
    },
  };
}

/** Writes every so often, never twice at once; once more when it is stopped. */
function startWriting(
  context: ServerContext,
  everyMs: number,
  write: () => Promise<void>,
): { stop(): Promise<void> } {
  let running: Promise<void> | null = null;
  function start(): Promise<void> {
    running ??= write()
      .catch((error: unknown) => context.log.warn({ err: error }, "Heartbeats were not written"))
      .finally(() => {
        running = null;
      });
    return running;
  }
  const timer = setInterval(start, everyMs);
  return {
    async stop() {
      clearInterval(timer);
      await running;
      await start();
    },
  };
}

/** Returns the connections that are not their agent's newest, or whose agent is revoked. */
async function writePresent(
  context: ServerContext,
  entries: readonly RollCallEntry[],
): Promise<string[]> {
  const rows = await context.database.query<{ connection: string }>(
    `update agents set seen_at = clock_timestamp(),
       protocol = coalesce(heard.protocol, agents.protocol),
       slots = case when heard.protocol is null then agents.slots else heard.slots end,
       version = case when heard.protocol is null then agents.version else heard.version end
     from unnest($1::text[], $2::text[], $3::int[], $4::int[], $5::text[])
       as heard (id, connection, protocol, slots, version)
     where agents.id = heard.id and agents.connection = heard.connection and revoked_at is null
     returning agents.connection`,
    [
      entries.map((entry) => entry.agentId),
      entries.map((entry) => entry.connection),
      entries.map((entry) => entry.traits?.protocol ?? null),
      entries.map((entry) => entry.traits?.slots ?? null),
      entries.map((entry) => entry.traits?.version ?? null),
    ],
  );
  const written = new Set(rows.map((row) => row.connection));
  return entries.map((entry) => entry.connection).filter((id) => !written.has(id));
}

async function writeGone(
  context: ServerContext,
  entries: readonly RollCallEntry[],
): Promise<boolean> {
  const rows = await context.database.query(
    `update agents set connection = null, connected_at = null, server = null
     from unnest($1::text[], $2::text[]) as gone (id, connection)
     where agents.id = gone.id and agents.connection = gone.connection
     returning agents.id`,
    [entries.map((entry) => entry.agentId), entries.map((entry) => entry.connection)],
  );
  return rows.length > 0;
}
