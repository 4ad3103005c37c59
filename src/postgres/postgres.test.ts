/** The real PostgreSQL, killed and orphaned in the ways that happen, with one row that must survive. */
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import pg from "pg";
import { isFault } from "../model/fault.ts";
import { readProcess } from "../protocol/process-identity.ts";
import { type Postgres, startPostgres } from "./postgres.ts";

let folder = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "landfall-test-"));
});
after(() => rm(folder, { recursive: true, force: true }));

const moduleUrl = new URL("./postgres.ts", import.meta.url).href;

test("a cold start makes the cluster, a warm start finds its rows, and a stop leaves nothing behind", async () => {
  const dataDirectory = join(folder, "plain");
  const first = await startPostgres({ dataDirectory });
  await query(first, "create table kept (word text)");
  await query(first, "insert into kept values ('first')");
  await first.stop();

  const second = await startPostgres({ dataDirectory });
  const rows = await query(second, "select word from kept");
  const [settings] = await query(
    second,
    "select current_setting('fsync') as fsync, current_setting('listen_addresses') as addresses",
  );
  const { mode } = await stat(second.connection.host);
  await Promise.all([second.stop(), second.stop()]);

  assert.deepEqual(rows, [{ word: "first" }]);
  assert.deepEqual(settings, { fsync: "on", addresses: "" });
  assert.equal(mode & 0o777, 0o700);
  assert.deepEqual(await second.exited, { exitCode: 0, signal: null });
  assert.equal(readProcess(second.pid), null);
  assert.equal(existsSync(second.connection.host), false);
});

test("after kill -9 of the postmaster, the next start has every committed row", async () => {
  const dataDirectory = join(folder, "killed");
  const first = await startPostgres({ dataDirectory });
  await query(first, "create table kept (n int)");
  const client = await connect(first);
  // Busy in the server when its postmaster dies: such a process does not notice by itself.
  const busy = client.query("do $$ begin loop end loop; end $$").catch(() => "cut off");
  for (let n = 1; n <= 20; n++) await query(first, `insert into kept values (${n})`);

  process.kill(first.pid, "SIGKILL");
  assert.deepEqual(await first.exited, { exitCode: null, signal: "SIGKILL" });
  await first.stop();
  const second = await startPostgres({ dataDirectory });
  const rows = await query(second, "select count(*)::int as n from kept");
  await second.stop();

  assert.deepEqual(rows, [{ n: 20 }]);
  assert.equal(await busy, "cut off");
});

test("the orphan of a supervisor that was killed is ended, not believed", async (t) => {
  const dataDirectory = join(folder, "orphan");
  const supervisor = await superviseElsewhere(dataDirectory);
  t.after(() => supervisor.child.kill("SIGKILL"));
  const orphan = { ...supervisor.postgres };
  await query(orphan, "create table kept (n int)");
  await query(orphan, "insert into kept values (1)");
  await assert.rejects(startPostgres({ dataDirectory }), (error) => {
    assert(isFault(error, "conflict"));
    assert.match(error.message, new RegExp(`process ${supervisor.child.pid} holds it`));
    return true;
  });
  supervisor.child.kill("SIGKILL");
  await once(supervisor.child, "exit");
  assert.notEqual(readProcess(orphan.pid), null);

  const messages: string[] = [];
  const own = await startPostgres({ dataDirectory, log: (message) => messages.push(message) });
  const rows = await query(own, "select n from kept");
  await own.stop();

  assert.notEqual(own.pid, orphan.pid);
  assert.equal(readProcess(orphan.pid), null);
  assert.equal(existsSync(orphan.connection.host), false);
  assert.deepEqual(rows, [{ n: 1 }]);
  assert.match(messages.join(), new RegExp(`earlier start left running \\(.*\\b${orphan.pid}\\b`));
});

test("a lock file that names a zombie or a stranger does not block the start", async (t) => {
  const dataDirectory = join(folder, "plain");
  // The shell starts a child and becomes `sleep`, which never reaps it.
  const stranger = spawn("sh", ["-c", "sleep 600 & echo $!; exec sleep 600"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  t.after(() => stranger.kill("SIGKILL"));
  const zombie = Number(String((await once(stranger.stdout, "data"))[0]));
  while (!(await readFile(`/proc/${stranger.pid}/comm`, "utf8")).startsWith("sleep"));
  process.kill(zombie, "SIGKILL");

  for (const pid of [zombie, pidOf(stranger)]) {
    await writeFile(
      join(dataDirectory, "cluster", "postmaster.pid"),
      `${pid}\n${dataDirectory}/cluster\n1700000000\n5432\n/tmp\n\n  1 1\nready   \n`,
    );
    const postgres = await startPostgres({ dataDirectory });
    assert.deepEqual(await query(postgres, "select 1 as n"), [{ n: 1 }]);
    await postgres.stop();
  }

  assert.notEqual(readProcess(pidOf(stranger)), null);
});

test("a data folder with a path of 200 characters works, since the socket is elsewhere", async () => {
  const dataDirectory = join(folder, "x".repeat(100), "y".repeat(100)).slice(0, 200);

  const postgres = await startPostgres({ dataDirectory });
  const rows = await query(postgres, "select 1 as n");
  await postgres.stop();

  assert.equal(dataDirectory.length, 200);
  assert.deepEqual(rows, [{ n: 1 }]);
});

test("a start that was cut off while the cluster was made is simply repeated", async () => {
  const dataDirectory = join(folder, "cut off");
  await mkdir(join(dataDirectory, "cluster-unfinished-abc"), { recursive: true });
  await writeFile(join(dataDirectory, "cluster-unfinished-abc", "PG_VERSION"), "18\n");

  const postgres = await startPostgres({ dataDirectory });
  await postgres.stop();

  assert.equal(existsSync(join(dataDirectory, "cluster-unfinished-abc")), false);
});

test("data of another major version, or of a newer Landfall, is refused and left as it is", async () => {
  for (const [version, words] of [
    ["19", /got 19: .* a newer version of Landfall\. Use that version/],
    ["17", /got 17: .* an older version of Landfall\. Use that version/],
  ] as const) {
    const dataDirectory = join(folder, `version ${version}`);
    await mkdir(join(dataDirectory, "cluster"), { recursive: true });
    await writeFile(join(dataDirectory, "cluster", "PG_VERSION"), `${version}\n`);
    await assert.rejects(startPostgres({ dataDirectory }), { code: "conflict", message: words });
    assert.equal(
      await readFile(join(dataDirectory, "cluster", "PG_VERSION"), "utf8"),
      `${version}\n`,
    );
  }

  const newer = join(folder, "newer format");
  await mkdir(newer);
  await writeFile(join(newer, "place.json"), JSON.stringify({ format: 2 }));
  await assert.rejects(startPostgres({ dataDirectory: newer }), {
    code: "conflict",
    message: /format 1, got 2: .* newer version of Landfall/,
  });
});

test("a cluster that PostgreSQL cannot open is a fault that names its log", async () => {
  const dataDirectory = join(folder, "broken");
  await mkdir(join(dataDirectory, "cluster"), { recursive: true, mode: 0o700 });
  await chmod(join(dataDirectory, "cluster"), 0o700);
  await writeFile(join(dataDirectory, "cluster", "PG_VERSION"), "18\n");

  await assert.rejects(startPostgres({ dataDirectory }), (error) => {
    assert(isFault(error, "unavailable"));
    assert.match(error.message, /postgresql\.conf.* See `.*postgres\.log`/);
    return true;
  });

  // What failed holds nothing: the next one is told the same, not that the folder is in use.
  await assert.rejects(startPostgres({ dataDirectory }), { code: "unavailable" });
});

test("a full disk is a fault that says so, when the cluster is made and when it is opened", async () => {
  const script = `
    import { writeFileSync } from "node:fs";
    import { startPostgres } from ${JSON.stringify(moduleUrl)};
    const say = (error) => console.log(error.code + ": " + error.message);
    await startPostgres({ dataDirectory: "small/data" }).catch(say);
    const postgres = await startPostgres({ dataDirectory: "large/data" });
    await postgres.stop();
    try { writeFileSync("large/filler", Buffer.alloc(200 << 20)); } catch {}
    await startPostgres({ dataDirectory: "large/data" }).catch(say);`;
  const mounts = "mount -t tmpfs -o size=20m none small && mount -t tmpfs -o size=100m none large";
  await mkdir(join(folder, "small"));
  await mkdir(join(folder, "large"));

  const output = execFileSync(
    "unshare",
    [
      ...(process.getuid?.() === 0 ? [] : ["--map-root-user"]),
      "--mount",
      "sh",
      "-c",
      `${mounts} && exec "$0" --disable-warning=ExperimentalWarning --input-type=module -e "$1"`,
      process.execPath,
      script,
    ],
    { cwd: folder, encoding: "utf8", timeout: 60_000 },
  );

  const lines = output.trim().split("\n");
  assert.equal(lines.length, 2, output);
  for (const line of lines)
    assert.match(line, /^unavailable: Expected .* disk is full.*Free some space/);
});

interface Supervised {
  readonly child: ChildProcess;
  readonly postgres: Pick<Postgres, "pid" | "connection">;
}

/** Starts PostgreSQL from another process, which then does nothing. */
async function superviseElsewhere(dataDirectory: string): Promise<Supervised> {
  const script = `
    import { startPostgres } from ${JSON.stringify(moduleUrl)};
    const { pid, connection } = await startPostgres({ dataDirectory: ${JSON.stringify(dataDirectory)} });
    console.log(JSON.stringify({ pid, connection }));`;
  const child = spawn(
    process.execPath,
    ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", script],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const [line] = await once(child.stdout, "data");
  return { child, postgres: JSON.parse(String(line)) };
}

async function connect(postgres: Pick<Postgres, "connection">): Promise<pg.Client> {
  const client = new pg.Client(postgres.connection);
  client.on("error", () => undefined);
  await client.connect();
  return client;
}

async function query(postgres: Pick<Postgres, "connection">, text: string): Promise<unknown[]> {
  const client = await connect(postgres);
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}

function pidOf(child: ChildProcess): number {
  assert(child.pid !== undefined);
  return child.pid;
}
