/** A vendor's own PostgreSQL instead of the embedded one. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import pg from "pg";
import { startPostgres } from "../src/postgres/postgres.ts";
import { createPlace, processesOf, runOnce } from "./system.ts";

test("DATABASE_URL is used instead of the embedded PostgreSQL, which is then not started", async (t) => {
  const place = await createPlace();
  const own = await createPlace();
  const postgres = await startPostgres({ dataDirectory: join(own.data, "postgres") });
  t.after(async () => {
    await postgres.stop();
    await place.remove();
    await own.remove();
  });
  const environment = { ...process.env, DATABASE_URL: postgres.url };
  const app = join(import.meta.dirname, "fixtures/prying-app");

  const { exitCode, output } = await runOnce({ ...place, app, environment });

  assert.equal(exitCode, 0, output);
  const client = new pg.Client({ connectionString: postgres.url });
  await client.connect();
  const { rows } = await client.query("select name from installs");
  await client.end();
  assert.deepEqual(rows, [{ name: "demo" }]);
  assert.deepEqual(processesOf(place.data), []);
});
