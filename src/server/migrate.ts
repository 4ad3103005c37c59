/**
 * Numbered migrations, applied in order, each in its own transaction, under one lock for all servers.
 *
 * What has landed never changes: the digest of every applied migration is kept and compared, and a
 * database that a newer version has migrated is refused before anything is touched.
 */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { Fault } from "../model/fault.ts";
import { type Digest, digestOf } from "../model/json.ts";
import type { Database, Sql } from "./database.ts";

interface Migration {
  readonly number: number;
  readonly name: string;
  readonly text: string;
  readonly digest: Digest;
}

const fileForm = /^(\d{4})-([a-z0-9-]+)\.sql$/;
/** Any number will do, as long as all servers take the same. */
const lockNumber = 7_462_031;

/** Brings the database to this version's tables. Several servers may call it at once. */
export async function migrate(database: Database, directory: string): Promise<void> {
  const migrations = await readMigrations(directory);
  await database.transaction("server", async (sql) => {
    await sql.query("select pg_advisory_xact_lock($1)", [lockNumber]);
    await sql.query(`create table if not exists migrations (
      number int primary key, name text not null, digest text not null,
      applied_at timestamptz not null default now())`);
    const applied = await sql.query<{ number: number; name: string; digest: string }>(
      "select number, name, digest from migrations order by number",
    );
    refuseUnknown(migrations, applied);
    for (const migration of migrations.slice(applied.length)) await apply(sql, migration);
  });
}

async function apply(sql: Sql, { number, name, text, digest }: Migration): Promise<void> {
  await sql.query(text);
  await sql.query("insert into migrations (number, name, digest) values ($1, $2, $3)", [
    number,
    name,
    digest,
  ]);
}

function refuseUnknown(
  known: readonly Migration[],
  applied: readonly { number: number; name: string; digest: string }[],
): void {
  for (const [index, row] of applied.entries()) {
    const migration = known[index];
    if (!migration) {
      throw new Fault(
        "conflict",
        `Expected a database of this version or an older one, but a newer Landfall has migrated it ` +
          `(migration ${row.number}, \`${row.name}\`). Run that version, or restore a back-up from before.`,
      );
    }
    if (migration.number !== row.number || migration.digest !== row.digest) {
      throw new Fault(
        "conflict",
        `Expected migration ${row.number} to be the one that was applied to this database, but its ` +
          `text has changed since. Released migrations never change: restore the file.`,
      );
    }
  }
}

async function readMigrations(directory: string): Promise<Migration[]> {
  const names = (await readdir(directory)).filter((name) => fileForm.test(name)).sort();
  return Promise.all(
    names.map(async (file, index) => {
      const [, digits = "", name = ""] = fileForm.exec(file) ?? [];
      if (Number(digits) !== index + 1) throw new Error(`Migration ${file} is out of order.`);
      const text = await readFile(join(directory, file), "utf8");
      return { number: index + 1, name, text, digest: digestOf(text) };
    }),
  );
}
