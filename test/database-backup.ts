/** A logical back-up of a test's database inside of it, and its restore: the server's memory goes back in time. */
import type { Database, Sql } from "../src/server/database.ts";

/** Copies every table; the returned function puts all of them back as they were, numbers of events included. */
export async function backUp(database: Database): Promise<() => Promise<void>> {
  await database.query("drop schema if exists backup cascade");
  await database.query("create schema backup");
  const tables = await tablesOf(database);
  for (const table of tables) {
    await database.query(`create table backup.${table} as table public.${table}`);
  }
  return () =>
    database.transaction("restore", async (sql) => {
      // As a restore does it: rows come back as they were, no trigger tells of them.
      await sql.query("set local session_replication_role = replica");
      await sql.query(`truncate ${tables.map((table) => `public.${table}`).join(", ")}`);
      for (const table of tables) {
        const columns = await columnsOf(sql, table);
        await sql.query(
          `insert into public.${table} (${columns}) overriding system value select ${columns} from backup.${table}`,
        );
      }
      await sql.query(
        "select setval(pg_get_serial_sequence('events', 'id'), (select coalesce(max(id), 1) from events))",
      );
    });
}

async function tablesOf(sql: Sql): Promise<string[]> {
  const rows = await sql.query<{ name: string }>(
    "select tablename as name from pg_tables where schemaname = 'public' and tablename <> 'migrations'",
  );
  return rows.map(({ name }) => name);
}

async function columnsOf(sql: Sql, table: string): Promise<string> {
  const rows = await sql.query<{ name: string }>(
    `select column_name as name from information_schema.columns
     where table_schema = 'public' and table_name = $1 and is_generated = 'NEVER'`,
    [table],
  );
  return rows.map(({ name }) => name).join(", ");
}
