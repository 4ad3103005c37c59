/** What PostgreSQL spends; with `--statements` also on which statements, and how often. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Postgres, startPostgres } from "../src/postgres/postgres.ts";
import { type Database, openDatabase } from "../src/server/database.ts";

/** A PostgreSQL in this folder; one that counts statements starts twice, to load what counts them. */
export async function startCounting(directory: string, counts: boolean): Promise<Postgres> {
  const dataDirectory = join(directory, "postgres");
  const postgres = await startPostgres({ dataDirectory });
  if (!counts) return postgres;
  const database = openDatabase(postgres.connection, () => {});
  await database.query("alter system set shared_preload_libraries = 'pg_stat_statements'");
  await database.close();
  await postgres.stop();
  const counting = await startPostgres({ dataDirectory });
  const again = openDatabase(counting.connection, () => {});
  await again.query("create extension pg_stat_statements");
  await again.query("alter system set pg_stat_statements.track = 'all'");
  await again.query("select pg_reload_conf()");
  await again.close();
  return counting;
}

/** Begins to count anew. */
export async function resetStatements(database: Database): Promise<void> {
  await database.query("select pg_stat_statements_reset()");
}

/** The dearest statements, each with its share per job. */
export async function listStatements(database: Database, jobs: number): Promise<string> {
  const rows = await database.query<{
    calls: number;
    ms: number;
    pages: number;
    wal: number;
    query: string;
  }>(
    `select calls, total_exec_time as ms, shared_blks_hit + shared_blks_read as pages,
            wal_bytes::float8 as wal, regexp_replace(query, '\\s+', ' ', 'g') as query
     from pg_stat_statements order by total_exec_time desc limit 40`,
  );
  return rows
    .map(({ calls, ms, pages, wal, query }) =>
      [
        `${(calls / jobs).toFixed(2).padStart(7)} calls`,
        `${(ms / jobs).toFixed(3).padStart(8)} ms`,
        `${(pages / jobs).toFixed(1).padStart(8)} pages`,
        `${(wal / jobs).toFixed(0).padStart(6)} B of log`,
        query.slice(0, 150),
      ].join("  "),
    )
    .join("\n");
}

const clockTicks = 100;

/** The CPU time of all living processes of a PostgreSQL, the postmaster's dead children included. */
export function cpuMsOf(postmaster: number): number {
  let ticks = 0;
  for (const name of readdirSync("/proc")) {
    const pid = Number(name);
    if (!(pid > 0)) continue;
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
      const [, parent, ...rest] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      const own = Number(rest[9]) + Number(rest[10]);
      if (pid === postmaster) ticks += own + Number(rest[11]) + Number(rest[12]);
      else if (Number(parent) === postmaster) ticks += own;
    } catch {
      // It has just ended.
    }
  }
  return (ticks * 1000) / clockTicks;
}
