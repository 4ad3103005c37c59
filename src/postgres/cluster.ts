/**
 * The cluster: PostgreSQL's own data folder, made once and then only opened.
 *
 * Invariants: a cluster under its final name is complete, since it is made beside it and renamed; one
 * of another major version is refused, never touched; all its files belong to the uid that PostgreSQL
 * runs under.
 */
import {
  chown,
  lchown,
  mkdtemp,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
} from "node:fs/promises";
import { join } from "node:path";
import { Fault } from "../model/fault.ts";
import { errorCode, explainFileError } from "../model/file-fault.ts";
import { type Binaries, postgresMajor } from "./binaries.ts";
import {
  type Identity,
  namedIdentity,
  ownerUid,
  runUnder,
  workingDirectoryPath,
} from "./isolation.ts";

/** The one role, and the one database that is made with the cluster. */
export const userName = "landfall";
export const databaseName = "postgres";

const initTimeoutMs = 120_000;
const unfinishedPrefix = "cluster-unfinished-";

/** Refuses a cluster of another major version; a folder without one is fine. */
export async function checkClusterVersion(dataDirectory: string): Promise<void> {
  const cluster = join(dataDirectory, "cluster");
  const version = await readFile(join(cluster, "PG_VERSION"), "utf8").catch((error) => {
    if (errorCode(error) === "ENOENT") return null;
    throw explainFileError(error, `to read \`${cluster}\``);
  });
  if (version === null) {
    const found = await stat(cluster).catch(() => null);
    if (found === null) return;
    throw new Fault(
      "conflict",
      `Expected a PostgreSQL cluster in \`${cluster}\`, got a folder without PG_VERSION. ` +
        "Restore it from a back-up, or move it away to start with an empty one.",
    );
  }
  if (version.trim() === String(postgresMajor)) return;
  const direction = Number(version) > postgresMajor ? "a newer" : "an older";
  throw new Fault(
    "conflict",
    `Expected data of PostgreSQL ${postgresMajor} in \`${cluster}\`, got ${version.trim()}: it was made by ` +
      `${direction} version of Landfall. Use that version, or choose another data folder.`,
  );
}

/** The path of the cluster, made if there was none, and owned by whom PostgreSQL runs as. */
export async function prepareCluster(dataDirectory: string, binaries: Binaries): Promise<string> {
  const cluster = join(dataDirectory, "cluster");
  try {
    const found = await stat(cluster).catch(() => null);
    if (found === null) await createCluster(dataDirectory, cluster, binaries);
    else await giveTo(cluster, found.uid, ownerUid(binaries.identity));
    return cluster;
  } catch (error) {
    throw explainFileError(error, `to write \`${dataDirectory}\``);
  }
}

async function createCluster(
  dataDirectory: string,
  cluster: string,
  binaries: Binaries,
): Promise<void> {
  for (const name of await readdir(dataDirectory)) {
    if (name.startsWith(unfinishedPrefix)) {
      await rm(join(dataDirectory, name), { recursive: true, force: true, maxRetries: 5 });
    }
  }
  const unfinished = await mkdtemp(join(dataDirectory, unfinishedPrefix));
  try {
    await initialize(unfinished, binaries);
    await rename(unfinished, cluster);
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true, maxRetries: 5 });
    throw error;
  }
  const folder = await open(dataDirectory, "r");
  await folder.sync().finally(() => folder.close());
}

async function initialize(directory: string, { directory: programs, identity }: Binaries) {
  const creator: Identity = await namedIdentity(identity);
  if (creator.isolation === "spare-uid") await chown(directory, creator.uid, creator.uid);
  const args = [
    `--pgdata=${workingDirectoryPath(directory)}`,
    `--username=${userName}`,
    "--auth=trust",
    "--encoding=UTF8",
    "--no-locale",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
  ];
  const options = { directory, timeoutMs: initTimeoutMs };
  const { ok, output } = await runUnder(creator, join(programs, "bin", "initdb"), args, options);
  if (!ok) throw initFault(directory, output);
  await giveTo(directory, ownerUid(creator), ownerUid(identity));
}

function initFault(directory: string, output: string): Fault {
  if (/No space left on device|Disk quota exceeded/.test(output)) {
    return new Fault(
      "unavailable",
      `Expected room for a new PostgreSQL cluster (50 MB) in \`${directory}\`, but the disk is full. ` +
        "Free some space, or choose another folder.",
    );
  }
  return new Fault(
    "unavailable",
    `Expected initdb to make a cluster in \`${directory}\`, but it failed: ${output.trim().slice(-1000)}`,
  );
}

/** Gives a folder and all in it to a uid; the folder itself last, so that a broken-off change is seen. */
async function giveTo(directory: string, current: number, wanted: number): Promise<void> {
  if (current === wanted) return;
  if (process.getuid?.() !== 0) {
    throw new Fault(
      "unavailable",
      `Expected \`${directory}\` to belong to uid ${wanted}, but it belongs to uid ${current}. ` +
        "Start as that user, or give the folder to this one with chown.",
    );
  }
  for (const entry of await readdir(directory, { recursive: true })) {
    await lchown(join(directory, entry), wanted, wanted);
  }
  await chown(directory, wanted, wanted);
}
