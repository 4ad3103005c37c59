/**
 * PostgreSQL under each identity: as root where user namespaces are barred, as an ordinary user, and as
 * one without an account; with programs that it can or cannot use where they were installed.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { chmod, chown, cp, lstat, mkdir, mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import pg from "pg";
import { findPackage } from "./binaries.ts";
import { defaultSpareUid } from "./isolation.ts";
import { type Postgres, startPostgres } from "./postgres.ts";

const isRoot = process.getuid?.() === 0;
const nobody = 65_534;
const withoutAccount = 59_433;
let folder = "";
/** A package as `npm install --ignore-scripts` leaves it, in a folder that only its owner may enter. */
let closedPackage = "";

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "landfall-test-"));
  closedPackage = join(folder, "closed", "package");
  await mkdir(join(folder, "closed"), { mode: 0o700 });
  await copyPackage(closedPackage);
});
after(() => rm(folder, { recursive: true, force: true }));

test("library links that are missing are made", async () => {
  const dataDirectory = join(folder, "linked");

  const postgres = await startPostgres({ dataDirectory, packageDirectory: closedPackage });
  await assertAnswers(postgres);

  const link = await stat(join(closedPackage, "native", "lib", "libpq.so.5"));
  assert.equal(link.isFile(), true);
});

test("root where user namespaces are barred runs it as a spare uid, in a folder closed to that uid", async (t) => {
  if (!isRoot) return assertRefused(t.name);
  const options = {
    dataDirectory: join(folder, "closed", "spare"),
    packageDirectory: closedPackage,
    isolation: "spare-uid",
    temporaryDirectories: [folder],
  } as const;
  await chmod(folder, 0o755);

  const postgres = await startPostgres(options);
  assert.equal(postgres.isolation, "spare-uid");
  assert.equal(await uidOf(postgres.pid), defaultSpareUid);
  assert.equal((await stat(postgres.connection.host)).uid, defaultSpareUid);
  await assertAnswers(postgres);

  // The copy of the programs is made once.
  const { binaries } = JSON.parse(
    await readFile(join(options.dataDirectory, "place.json"), "utf8"),
  );
  assert.match(binaries, new RegExp(`^${folder}/landfall-postgres-`));
  await assertAnswers(await startPostgres(options));
  const again = JSON.parse(await readFile(join(options.dataDirectory, "place.json"), "utf8"));
  assert.equal(again.binaries, binaries);
});

test("root may change between the identities on one data folder", async (t) => {
  if (!isRoot) return assertRefused(t.name);
  const dataDirectory = join(folder, "changing");

  for (const isolation of ["user-namespace", "spare-uid", "user-namespace"] as const) {
    const postgres = await startPostgres({ dataDirectory, isolation });
    assert.equal(await uidOf(postgres.pid), isolation === "spare-uid" ? defaultSpareUid : 0);
    await assertAnswers(postgres);
  }
});

test("an ordinary user runs it as itself, from a package that it may read but not write", async () => {
  const output = await startAs(nobody, "ordinary");

  assert.match(output, /^none answers$/m);
});

test("an ordinary user without an account in /etc/passwd can make a cluster too", async () => {
  const output = await startAs(withoutAccount, "nameless");

  assert.match(output, /^none answers$/m);
});

test("an ordinary user is told whose data folder it is", async (t) => {
  if (!isRoot) return assertRefused(t.name);
  const dataDirectory = join(folder, "foreign");
  await assertAnswers(await startPostgres({ dataDirectory }));
  await chown(dataDirectory, nobody, nobody);
  await chown(join(dataDirectory, "place.json"), nobody, nobody);

  const output = await startAs(nobody, "foreign");

  assert.match(output, /unavailable: Expected .*foreign.* Change its owner or mode/);
});

/** Starts it in a process of its own from a tree that everybody may read, and says how that went. */
async function startAs(uid: number, name: string): Promise<string> {
  const house = join(folder, "house");
  const node = join(house, "node");
  if (!(await stat(node).catch(() => null))) {
    await mkdir(house, { mode: 0o755 });
    for (const unit of ["files", "model", "protocol", "postgres"]) {
      await cp(new URL(`../${unit}`, import.meta.url), join(house, unit), { recursive: true });
    }
    await cp(process.execPath, node, { mode: constants.COPYFILE_FICLONE });
    await copyPackage(join(house, "package"));
    await chmod(folder, 0o755);
  }
  const dataDirectory = join(folder, name);
  await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
  if (isRoot && name !== "foreign") await chown(dataDirectory, uid, uid);
  const script = `
    import { startPostgres } from ${JSON.stringify(join(house, "postgres", "postgres.ts"))};
    try {
      const postgres = await startPostgres({
        dataDirectory: ${JSON.stringify(dataDirectory)},
        packageDirectory: ${JSON.stringify(join(house, "package"))},
      });
      console.log(postgres.isolation, "answers");
      await postgres.stop();
    } catch (error) { console.log(error.code + ": " + error.message); }`;
  const { stdout } = await promisify(execFile)(
    node,
    ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", script],
    {
      ...(isRoot ? { uid, gid: uid } : {}),
      cwd: house,
      env: { HOME: dataDirectory },
      timeout: 60_000,
    },
  );
  return stdout;
}

async function copyPackage(target: string): Promise<void> {
  await cp(findPackage(), target, {
    recursive: true,
    mode: constants.COPYFILE_FICLONE,
    filter: async (source) => !/\.a$|\/dist|\/scripts/.test(source) && !(await isLink(source)),
  });
}

async function isLink(path: string): Promise<boolean> {
  return (await lstat(path)).isSymbolicLink();
}

async function assertAnswers(postgres: Postgres): Promise<void> {
  const client = new pg.Client({ connectionString: postgres.url });
  await client.connect();
  const { rows } = await client.query("select 1 as n");
  await client.end();
  await postgres.stop();
  assert.deepEqual(rows, [{ n: 1 }]);
}

/** The uid as seen from outside of any namespace. */
async function uidOf(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(status.match(/^Uid:\s+(\d+)/m)?.[1]);
}

/** What only root can do is refused to others, with advice, and not left out. */
async function assertRefused(name: string): Promise<void> {
  const dataDirectory = join(folder, `refused ${name.length}`);
  await assert.rejects(startPostgres({ dataDirectory, isolation: "spare-uid" }), {
    code: "unavailable",
    message: /Run as an ordinary user, or name a PostgreSQL of your own/,
  });
}
