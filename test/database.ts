/** A fresh, migrated database on a PostgreSQL that is started for one test file and removed after it. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startPostgres } from "../src/postgres/postgres.ts";
import { type Database, openDatabase } from "../src/server/database.ts";
import { migrate } from "../src/server/migrate.ts";

export const migrationsDirectory = join(import.meta.dirname, "../src/server/migrations");

export interface TestDatabase {
  readonly database: Database;
  readonly url: string;
  close(): Promise<void>;
}

/** Starts PostgreSQL in a temporary folder; the caller closes it in `after`. */
export async function createDatabase(): Promise<TestDatabase> {
  const directory = await mkdtemp(join(tmpdir(), "landfall-test-"));
  const postgres = await startPostgres({ dataDirectory: join(directory, "postgres") });
  const database = openDatabase(postgres.connection, () => {});
  await migrate(database, migrationsDirectory);
  return {
    database,
    url: postgres.url,
    async close() {
      await database.close();
      await postgres.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
