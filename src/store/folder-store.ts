/**
 * The store of an install on one machine: a 0700 folder with `store.db` (SQLite, WAL, every commit
 * flushed) and `store.key` (0600), from which the encryption and hash keys are derived.
 *
 * Several processes use it at once: every change is one immediate transaction, and whoever finds it
 * busy waits up to `busyMs`. Fence, version and value are checked and written in that transaction.
 */
import { randomBytes } from "node:crypto";
import { chmod, link, mkdir, readFile, stat, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync, type SQLOutputValue } from "node:sqlite";
import { Fault } from "../model/fault.ts";
import { createSealing, masterKeyBytes, type Sealing } from "./sealing.ts";
import {
  checkEntry,
  checkFence,
  checkOpening,
  checkVersion,
  conflictKey,
  type Fence,
  type FenceMark,
  listMax,
  type Store,
  type WriteOptions,
} from "./store.ts";

const busyMs = 15_000;
/** The low byte of SQLite's extended result codes. */
const primaryCodeMask = 0xff;
const passingErrors: ReadonlyMap<number, readonly [got: string, advice: string]> = new Map([
  [5, [`it was busy for ${busyMs / 1000} s`, "Look at what holds it"]],
  [10, ["its disk failed or is full", "Look at the disk, and try again"]],
  [13, ["the disk is full", "Free some space, and try again"]],
  [14, ["a file of it cannot be opened", "Look at its folder and the disk, and try again"]],
]);
const databaseFile = "store.db";
const keyFile = "store.key";

const schema = `
  create table if not exists entries (
    key text primary key, version integer not null, sealed blob not null
  ) without rowid;
  create table if not exists fences (
    component text not null, job_id text not null,
    generation integer not null, n integer not null, ordinal integer not null,
    primary key (component, job_id)
  ) without rowid;
  create table if not exists counter (only integer primary key check (only = 1), value integer not null);
  insert or ignore into counter values (1, 0);
`;

/** Makes the store when it is not there yet, completes it when its creation was cut short, and opens it. */
export async function createFolderStore(directory: string): Promise<Store> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await chmod(directory, 0o700);
  if (!(await exists(join(directory, keyFile)))) {
    // A key made anew beside values that an older key sealed would lose them all.
    if (await exists(join(directory, databaseFile))) throw keyMissing(directory);
    await placeKey(directory);
  }
  return open(directory);
}

/** Opens a store that is there; a `Fault` when it is not. */
export async function openFolderStore(directory: string): Promise<Store> {
  if (!(await exists(join(directory, databaseFile)))) {
    throw new Fault(
      "not_found",
      `Expected the install's store in \`${directory}\`, found none. Provision the sandbox first.`,
    );
  }
  if (!(await exists(join(directory, keyFile)))) throw keyMissing(directory);
  return open(directory);
}

async function open(directory: string): Promise<Store> {
  const sealing = createSealing(await readFile(join(directory, keyFile)));
  const database = new DatabaseSync(join(directory, databaseFile), { timeout: busyMs });
  try {
    database.exec("pragma journal_mode = wal; pragma synchronous = full;");
    if (!database.prepare("select 1 from sqlite_master where name = 'counter'").get()) {
      inTransaction(database, () => database.exec(schema));
    }
  } catch (error) {
    database.close();
    throw explainSqliteError(error);
  }
  return storeOver(database, sealing);
}

function storeOver(database: DatabaseSync, sealing: Sealing): Store {
  return {
    async openFence(fence) {
      inTransaction(database, () => raiseMark(database, fence));
    },
    async read(key) {
      checkEntry(key, null);
      const row = database.prepare("select version, sealed from entries where key = ?").get(key);
      if (!row) return null;
      const version = Number(row.version);
      return { value: sealing.unseal(placeOf(key, version), bytesOf(row.sealed)), version };
    },
    async write(key, value, options) {
      checkEntry(key, value);
      return change(database, sealing, key, value, options);
    },
    async remove(key, options) {
      checkEntry(key, null);
      change(database, sealing, key, null, options);
    },
    async list(prefix) {
      return database
        .prepare("select key from entries where substr(key, 1, ?) = ? order by key limit ?")
        .all(prefix.length, prefix, listMax)
        .map((row) => String(row.key));
    },
    hash: (value) => sealing.hash(value),
    async close() {
      database.close();
    },
  };
}

function change(
  database: DatabaseSync,
  sealing: Sealing,
  key: string,
  value: Uint8Array | null,
  options: WriteOptions,
): number {
  // The refusal commits too: it leaves the refused value behind.
  const { version, refusal } = inTransaction(database, () => {
    try {
      checkFence(options.fence, readMark(database, options.fence.component));
      const found = database.prepare("select version from entries where key = ?").get(key);
      if (value !== null || found) {
        checkVersion(key, options.expectedVersion, found ? Number(found.version) : null);
      }
    } catch (error) {
      if (value) {
        const number = nextVersion(database);
        put(database, sealing, conflictKey(key, options.fence, number), value, number);
      }
      return { version: 0, refusal: error };
    }
    const number = nextVersion(database);
    if (value) put(database, sealing, key, value, number);
    else database.prepare("delete from entries where key = ?").run(key);
    return { version: number, refusal: null };
  });
  if (refusal) throw refusal;
  return version;
}

function put(
  database: DatabaseSync,
  sealing: Sealing,
  key: string,
  value: Uint8Array,
  version: number,
): void {
  database
    .prepare("insert or replace into entries (key, version, sealed) values (?, ?, ?)")
    .run(key, version, sealing.seal(placeOf(key, version), value));
}

function raiseMark(database: DatabaseSync, fence: Fence): void {
  const seen = database
    .prepare("select 1 from fences where component = ? and job_id = ?")
    .get(fence.component, fence.jobId);
  checkOpening(fence, readMark(database, fence.component), seen !== undefined);
  database
    .prepare("insert or replace into fences values (?, ?, ?, ?, ?)")
    .run(
      fence.component,
      fence.jobId,
      fence.epoch.generation,
      fence.epoch.n,
      nextVersion(database),
    );
}

function readMark(database: DatabaseSync, component: string): FenceMark | null {
  const row = database
    .prepare(
      "select job_id, generation, n from fences where component = ? order by ordinal desc limit 1",
    )
    .get(component);
  return row
    ? { jobId: String(row.job_id), generation: Number(row.generation), n: Number(row.n) }
    : null;
}

function nextVersion(database: DatabaseSync): number {
  return Number(
    database.prepare("update counter set value = value + 1 returning value").get()?.value,
  );
}

function inTransaction<T>(database: DatabaseSync, work: () => T): T {
  try {
    database.exec("begin immediate");
    const result = work();
    database.exec("commit");
    return result;
  } catch (error) {
    // Where the disk is full SQLite has rolled back by itself, and asking again would hide the cause.
    if (database.isTransaction) database.exec("rollback");
    throw explainSqliteError(error);
  }
}

/** What passes by itself, or by freeing space, is no fault of the operation: it may be tried again. */
function explainSqliteError(error: unknown): unknown {
  const code = error instanceof Error && "errcode" in error ? Number(error.errcode) : null;
  const cause = code === null ? undefined : passingErrors.get(code & primaryCodeMask);
  if (cause === undefined) return error;
  const [got, advice] = cause;
  const message = `Expected to use the install's store, but ${got}. ${advice}.`;
  return new Fault("unavailable", message, { cause: error });
}

/** Written aside and linked into place: of two who create at once, both use the key of the first. */
async function placeKey(directory: string): Promise<void> {
  const aside = join(directory, `${keyFile}.${randomBytes(6).toString("hex")}`);
  await writeFile(aside, randomBytes(masterKeyBytes), { mode: 0o600, flush: true });
  try {
    await link(aside, join(directory, keyFile));
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
  } finally {
    await unlink(aside);
  }
}

function placeOf(key: string, version: number): string {
  return `${key}@${version}`;
}

function bytesOf(value: SQLOutputValue | undefined): Uint8Array {
  if (value instanceof Uint8Array) return value;
  throw new Fault("invalid", "Expected bytes in the install's store, got something else.");
}

function keyMissing(directory: string): Fault {
  return new Fault(
    "not_found",
    `Expected \`${keyFile}\` in \`${directory}\`, found only values that it sealed. Restore the file; without it they cannot be read.`,
  );
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
