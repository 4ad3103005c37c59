/**
 * The data folder: where everything that one Landfall keeps on this machine is, `.landfall/` by default.
 *
 *   version.json   { "format": 1 }
 *   lock.json      pid, start time and boot id of the process that uses the folder
 *   lock.sqlite    empty; the kernel's lock on it makes looking at lock.json and replacing it one step
 *   postgres/ server/ registry/ build-agent/ installs/ logs/ run/
 *
 * Invariants: one live process at a time; nobody but the owner may enter; a folder that is refused
 * is left as it was.
 */
import { randomBytes } from "node:crypto";
import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { chmod, mkdir, open, readdir, realpath, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Fault } from "../model/fault.ts";
import { errorCode, explainFileError } from "../model/file-fault.ts";
import { ProcessRecord } from "../protocol/job-folder.ts";
import { isAlive, ownProcess } from "../protocol/process-identity.ts";

const dataFormat = 1;
const lockTimeoutMs = 5000;
/** Enough that a disk with a few free blocks left does not pass for one that can be used. */
const probeBytes = 64 * 1024;

const folderNames = {
  postgres: "postgres",
  server: "server",
  registry: "registry",
  buildAgent: "build-agent",
  installs: "installs",
  logs: "logs",
  run: "run",
} as const;

/** An opened data folder: absolute paths, all of which exist. */
export interface DataFolder extends Readonly<Record<keyof typeof folderNames, string>> {
  readonly path: string;
  /** Lets another process use the folder; a second call does nothing. */
  close(): Promise<void>;
}

/** Makes the folder if there is none, refuses one that cannot be used, and locks it for this process. */
export async function openDataFolder(path: string): Promise<DataFolder> {
  const wanted = resolve(path);
  try {
    await makeFolder(wanted);
    const root = await realpath(wanted);
    await checkFormat(root);
    await probe(root);
    withLockFile(root, () => takeLock(root));
    try {
      return await lay(root);
    } catch (error) {
      withLockFile(root, () => dropLock(root));
      throw error;
    }
  } catch (error) {
    throw explainFileError(error, `a data folder in \`${wanted}\``, adviceFor(errorCode(error)));
  }
}

async function lay(root: string): Promise<DataFolder> {
  const { mode } = await stat(root);
  if ((mode & 0o077) !== 0) await chmod(root, 0o700);
  const names = Object.entries(folderNames).map(([key, name]) => [key, join(root, name)] as const);
  for (const [, folder] of names) await makeFolder(folder);
  replaceFile(join(root, "version.json"), { format: dataFormat });
  let closed = false;
  return {
    ...(Object.fromEntries(names) as Record<keyof typeof folderNames, string>),
    path: root,
    close: async () => {
      if (closed) return;
      closed = true;
      withLockFile(root, () => dropLock(root));
    },
  };
}

/** Like `mkdir` with `recursive`, which calls a read-only file system "no such file or directory". */
async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 });
  } catch (error) {
    const code = errorCode(error);
    if (code === "EEXIST" && (await stat(path)).isDirectory()) return;
    if (code !== "ENOENT" || dirname(path) === path) throw error;
    await makeFolder(dirname(path));
    await mkdir(path, { mode: 0o700 });
  }
}

async function checkFormat(root: string): Promise<void> {
  const version = readJson(join(root, "version.json"));
  if (version === null) {
    const foreign = (await readdir(root)).find((name) => !/^(lock|version|probe)[.-]/.test(name));
    const known = new Set<string>(Object.values(folderNames));
    if (foreign === undefined || known.has(foreign)) return;
    throw new Fault(
      "conflict",
      `Expected \`${root}\` to be empty or a data folder of Landfall, but it holds \`${foreign}\`. ` +
        "Choose another folder with --data.",
    );
  }
  const format = typeof version === "object" && "format" in version ? version.format : undefined;
  if (format === dataFormat) return;
  throw new Fault(
    "conflict",
    `Expected the data folder \`${root}\` to have format ${dataFormat}, got ${JSON.stringify(format)}: ` +
      "it was made by a newer version of Landfall. Use that version, or choose another folder with --data.",
  );
}

/** Shows a disk that is full or read-only before anything is changed. */
async function probe(root: string): Promise<void> {
  const file = join(root, `probe-${randomBytes(6).toString("hex")}`);
  const handle = await open(file, "wx", 0o600);
  try {
    await handle.writeFile(randomBytes(probeBytes));
    await handle.sync();
  } finally {
    await handle.close();
    await rm(file, { force: true });
  }
}

/**
 * Runs `body` while the kernel keeps every other process out; the lock ends with this process. All of
 * it is synchronous: a second opening in this process would else wait for the first, and block it.
 */
function withLockFile(root: string, body: () => void): void {
  const database = new DatabaseSync(join(root, "lock.sqlite"), { timeout: lockTimeoutMs });
  try {
    database.exec("begin exclusive");
    body();
  } finally {
    database.close();
  }
}

function takeLock(root: string): void {
  const file = join(root, "lock.json");
  const holder = ProcessRecord.safeParse(readJson(file));
  if (holder.success && isAlive(holder.data)) {
    throw new Fault(
      "conflict",
      `Expected the data folder \`${root}\` to be free, but process ${holder.data.pid} uses it. ` +
        "Stop that process, or choose another folder with --data.",
    );
  }
  replaceFile(file, ownProcess());
}

function dropLock(root: string): void {
  const file = join(root, "lock.json");
  const holder = ProcessRecord.safeParse(readJson(file));
  if (holder.success && holder.data.pid === process.pid) rmSync(file, { force: true });
}

function replaceFile(file: string, content: unknown): void {
  writeFileSync(`${file}.new`, `${JSON.stringify(content)}\n`, { mode: 0o600, flush: true });
  renameSync(`${file}.new`, file);
}

/** Null when there is no such file; what is no JSON is `{}`, which no check accepts. */
function readJson(file: string): object | null {
  try {
    const value: unknown = JSON.parse(readFileSync(file, "utf8"));
    return typeof value === "object" && value !== null ? value : {};
  } catch (error) {
    if (errorCode(error) === "ENOENT") return null;
    if (error instanceof SyntaxError) return {};
    throw error;
  }
}

function adviceFor(code: string | null): string {
  const full = code === "ENOSPC" || code === "EDQUOT";
  return full
    ? "Free some space, or choose another folder with --data"
    : "Choose another folder with --data";
}
