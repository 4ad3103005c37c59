/** Sensitive values never leave the install: a canary in one is looked for everywhere else. */
import assert from "node:assert/strict";
import { globSync, readFileSync, statSync } from "node:fs";
import { join, relative } from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import pg from "pg";
import type { InstallView, JobView } from "../src/protocol/api.ts";
import { createPlace, runCommand, startSystem } from "./system.ts";

const canaryApp = join(import.meta.dirname, "fixtures/canary-app");
/** Made at run time by the app's own job, in two halves, so that no source and no artifact holds it. */
const canary = ["canary", "5d0f7be1", "never", "leaves"].join("-");

test("a canary in a sensitive output is found in no table, blob, log, manifest, event or API answer", async (t) => {
  const place = await createPlace();
  const system = startSystem({ ...place, app: canaryApp });
  t.after(async () => {
    await system.stop();
    await place.remove();
  });
  await system.ready();
  const install = await system.install();

  // It did reach the component that needed it.
  const consumer = install.components.find(({ name }) => name === "consumer")?.outputs.length;
  assert.deepEqual(consumer, { sensitive: false, value: String(canary.length) });
  const secret = install.components.find(({ name }) => name === "secret")?.outputs.password;
  assert.equal(secret?.sensitive, true);

  await assertNotInDatabase(place.data);
  assertNotInFiles(place.data);
  await assertNotInAnswers(system.api, install);
  const { jobs } = await system.api<{ jobs: JobView[] }>("/api/jobs?limit=200");
  for (const { id } of jobs) {
    const { output } = await runCommand(place.data, ["logs", id]);
    assert(!output.includes(canary), `the log of ${id}`);
  }
  assert(!system.output().includes(canary));
});

async function assertNotInDatabase(data: string): Promise<void> {
  const config = JSON.parse(readFileSync(join(data, "server/config.json"), "utf8"));
  const client = new pg.Client({ connectionString: config.database.url });
  await client.connect();
  try {
    const { rows: tables } = await client.query<{ name: string }>(
      "select quote_ident(tablename) as name from pg_tables where schemaname = 'public'",
    );
    assert(tables.length >= 15);
    for (const { name } of tables) {
      const { rows } = await client.query(
        `select 1 from ${name} as r where r::text like $1 limit 1`,
        [`%${canary}%`],
      );
      assert.equal(rows.length, 0, `table ${name}`);
    }
  } finally {
    await client.end();
  }
}

/** All files of the data folder but the one place where the value may be: the install's own supervisor and job data. */
function assertNotInFiles(data: string): void {
  const files = globSync("**/*", { cwd: data }).filter((file) =>
    statSync(join(data, file)).isFile(),
  );
  assert(files.length > 50);
  const found = files.filter((file) => holds(join(data, file)));
  const allowed = /^installs\/ins_[^/]+\/supervisor\/(desired|data|run)\//;
  assert.deepEqual(
    found.filter((file) => !allowed.test(relative(".", file))),
    [],
  );
}

function holds(path: string): boolean {
  const bytes = readFileSync(path);
  if (bytes.includes(canary) || bytes.includes(Buffer.from(canary).toString("base64"))) return true;
  const isGzip = bytes[0] === 0x1f && bytes[1] === 0x8b;
  return isGzip && gunzipSync(bytes).includes(canary);
}

async function assertNotInAnswers(
  api: <Answer>(path: string) => Promise<Answer>,
  install: InstallView,
): Promise<void> {
  const paths = [
    "/api/apps",
    "/api/builds",
    "/api/releases",
    "/api/installs",
    "/api/jobs?limit=200",
    "/api/agents",
    "/api/events?limit=500",
  ];
  for (const path of [...paths, `/api/installs/${install.name}`]) {
    assert(!JSON.stringify(await api(path)).includes(canary), path);
  }
}
