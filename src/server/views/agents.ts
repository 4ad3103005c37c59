/** Reads agents for people: those that count first, then the revoked ones. */
import { Fault } from "../../model/fault.ts";
import type { AgentView } from "../../protocol/api.ts";
import type { Sql } from "../database.ts";

export const agentsMax = 500;

/** Agents, newest first. */
export async function listAgents(sql: Sql, limit = agentsMax): Promise<AgentView[]> {
  return selectAgents(
    sql,
    `order by (a.revoked_at is not null), a.created_at desc, a.id desc limit $1`,
    [Math.min(limit, agentsMax)],
  );
}

/** One agent; `Fault` when there is none. */
export async function viewAgent(sql: Sql, id: string): Promise<AgentView> {
  const [view] = await selectAgents(sql, "where a.id = $1", [id]);
  if (view) return view;
  throw new Fault(
    "not_found",
    `Expected the id of an agent, got \`${id}\`. List them with \`landfall agents\`.`,
  );
}

interface AgentRow extends Omit<AgentView, "seenAt" | "drain"> {
  readonly seen_at: Date | null;
  readonly draining_at: Date | null;
  readonly drain_reason: string | null;
}

async function selectAgents(
  sql: Sql,
  rest: string,
  values: readonly unknown[],
): Promise<AgentView[]> {
  const rows = await sql.query<AgentRow>(
    `select a.id, a.role, i.name as install, a.connection is not null as connected, a.seen_at,
            a.generation, a.revoked_at is not null as revoked, a.draining_at, a.drain_reason, a.version,
            (select count(*) from jobs where agent_id = a.id) as jobs
     from agents a left join installs i on i.id = a.install_id
     ${rest}`,
    values,
  );
  return rows.map(({ seen_at, draining_at, drain_reason, ...row }) => ({
    ...row,
    seenAt: seen_at?.toISOString() ?? null,
    drain: draining_at && { reason: drain_reason ?? "", since: draining_at.toISOString() },
  }));
}
