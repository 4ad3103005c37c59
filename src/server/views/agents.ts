/** Reads agents for people: those that count first, then the revoked ones. */
import type { AgentView } from "../../protocol/api.ts";
import type { Sql } from "../database.ts";

export const agentsMax = 500;

/** Agents, newest first. */
export async function listAgents(sql: Sql, limit = agentsMax): Promise<AgentView[]> {
  const rows = await sql.query<Omit<AgentView, "seenAt"> & { seen_at: Date | null }>(
    `select a.id, a.role, i.name as install, a.connection is not null as connected, a.seen_at,
            a.generation, a.revoked_at is not null as revoked
     from agents a left join installs i on i.id = a.install_id
     order by (a.revoked_at is not null), a.created_at desc, a.id desc limit $1`,
    [Math.min(limit, agentsMax)],
  );
  return rows.map(({ seen_at, ...row }) => ({ ...row, seenAt: seen_at?.toISOString() ?? null }));
}
