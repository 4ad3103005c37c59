/** Migrations against a real PostgreSQL: in order, once, and never other ones than those that landed. */
import assert from "node:assert/strict";
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { createDatabase, migrationsDirectory, type TestDatabase } from "../../test/database.ts";
import { digestOf } from "../model/json.ts";
import { migrate } from "./migrate.ts";

/** What has landed. A migration that is not here yet may still change; one that is never does. */
const landed: Readonly<Record<string, string>> = JSON.parse(
  await readFile(join(import.meta.dirname, "migrations/landed.json"), "utf8"),
);

let testing: TestDatabase;
before(async () => {
  testing = await createDatabase();
});
after(() => testing.close());

test("a landed migration is what it was when it landed", async () => {
  for (const [name, digest] of Object.entries(landed)) {
    assert.equal(digestOf(await readFile(join(migrationsDirectory, name))), digest, name);
  }
  const files = (await readdir(migrationsDirectory)).filter((name) => name.endsWith(".sql"));
  assert.deepEqual(files.sort(), Object.keys(landed).sort());
});

test("migrating again, even many times at once, changes nothing", async () => {
  await Promise.all(
    Array.from({ length: 5 }, () => migrate(testing.database, migrationsDirectory)),
  );

  const rows = await testing.database.query("select number from migrations");
  assert.equal(rows.length, Object.keys(landed).length);
});

test("a database that a newer version has migrated is refused and left as it is", async () => {
  await testing.database.query(
    "insert into migrations (number, name, digest) values (9001, 'from-the-future', 'sha256:0')",
  );

  await assert.rejects(migrate(testing.database, migrationsDirectory), {
    code: "conflict",
    message: /newer Landfall has migrated it/,
  });

  await testing.database.query("delete from migrations where number = 9001");
});

test("a landed migration whose text has changed is refused", async () => {
  const directory = await mkdtemp(join(tmpdir(), "landfall-migrations-"));
  try {
    await cp(migrationsDirectory, directory, { recursive: true });
    const [first = ""] = Object.keys(landed);
    await writeFile(join(directory, first), "create table something_else ();");

    await assert.rejects(migrate(testing.database, directory), { message: /has changed since/ });
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

test("a migration that fails leaves nothing of itself", async () => {
  const directory = await mkdtemp(join(tmpdir(), "landfall-migrations-"));
  try {
    await cp(migrationsDirectory, directory, { recursive: true });
    const number = String(Object.keys(landed).length + 1).padStart(4, "0");
    await writeFile(join(directory, `${number}-half.sql`), "create table half (); select 1 / 0;");

    await assert.rejects(migrate(testing.database, directory), /division by zero/);

    assert.deepEqual(
      await testing.database.query("select 1 from pg_tables where tablename = 'half'"),
      [],
    );
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});
