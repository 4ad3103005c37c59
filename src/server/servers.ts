/**
 * The servers of one database, each by its heartbeat. One that is killed cannot say that its agents are
 * gone: another one notices that its heart has stopped, and says it for it.
 *
 * Invariant: an agent's row names a connection only while the server that holds it lives, give or take
 * `deadAfterSeconds`. Time is the database's clock.
 */
import type { ServerContext } from "./context.ts";
import type { Sql } from "./database.ts";

export const beatMs = 5000;
/** A server that was not seen for so long is dead. */
export const deadAfterSeconds = 30;

/** Says that this server lives. Called before it takes its first agent, then every `beatMs`. */
export async function beatServer(sql: Sql, serverId: string): Promise<void> {
  await sql.query(
    `insert into servers (id, seen_at) values ($1, clock_timestamp())
     on conflict (id) do update set seen_at = excluded.seen_at`,
    [serverId],
  );
}

/** Forgets dead servers and the connections that they held. Returns how many agents were theirs. */
export async function sweepServers(context: ServerContext): Promise<number> {
  // The delete is the guard: of several servers that notice, one gets the row.
  const rows = await context.database.query(
    `with dead as (
       delete from servers where seen_at < clock_timestamp() - make_interval(secs => $1) returning id)
     update agents set connection = null, connected_at = null, server = null
     where server in (select id from dead) and connection is not null
     returning id`,
    [deadAfterSeconds],
  );
  if (rows.length > 0) context.wake.notify("live");
  return rows.length;
}

/** What a server does as it starts and as it stops: none of its connections is there. */
export async function forgetConnections(sql: Sql, serverId: string): Promise<void> {
  await sql.query(
    `update agents set connection = null, connected_at = null, server = null
     where server = $1 and connection is not null`,
    [serverId],
  );
}

/** A server that stops is not dead, it is gone. */
export async function removeServer(sql: Sql, serverId: string): Promise<void> {
  await forgetConnections(sql, serverId);
  await sql.query("delete from servers where id = $1", [serverId]);
}
