/**
 * What must be remembered of a PostgreSQL between two starts, in `place.json` beside its cluster:
 * where its socket is, which process supervises it, and the mark by which its processes are known.
 *
 *   <data directory>/cluster/       the data (PGDATA)
 *   <data directory>/place.json     this record, replaced by rename
 *   <data directory>/postgres.log   what PostgreSQL itself said
 *
 * Invariant: the owner is written before PostgreSQL is started and removed after it has ended, so
 * whoever finds a dead owner knows that there may be remains.
 */
import { randomBytes } from "node:crypto";
import { chmod, chown, lstat, mkdtemp, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { replaceFile } from "../files/replace-file.ts";
import { Fault } from "../model/fault.ts";
import { errorCode, explainFileError } from "../model/file-fault.ts";
import type { ProcessRecord } from "../protocol/job-folder.ts";
import { isAlive } from "../protocol/process-identity.ts";

const placeFormat = 1;
/** 107 bytes is what a unix socket's address may hold; `/.s.PGSQL.5432` needs 14. */
const socketDirectoryBytesMax = 107 - 14;

export interface Place {
  readonly format: number;
  /** PostgreSQL's `cluster_name`: it is in the command line or title of each of its processes. */
  readonly mark: string;
  readonly socketDirectory: string | null;
  /** A copy of the programs, when they could not be run where they were installed. */
  readonly binaries: string | null;
  readonly owner: ProcessRecord | null;
}

/** The record of an earlier start, or a new one; refuses a folder that a newer version or a live process holds. */
export async function readPlace(dataDirectory: string): Promise<Place> {
  const text = await readFile(join(dataDirectory, "place.json"), "utf8").catch((error) => {
    if (errorCode(error) === "ENOENT") return null;
    throw explainFileError(error, `to read \`${dataDirectory}\``);
  });
  if (text === null) return newPlace();
  const place: Place = JSON.parse(text);
  if (place.format !== placeFormat) {
    throw new Fault(
      "conflict",
      `Expected \`${dataDirectory}\` to have format ${placeFormat}, got ${place.format}: it was made ` +
        "by a newer version of Landfall. Use that version, or choose another data folder.",
    );
  }
  if (place.owner !== null && isAlive(place.owner)) {
    throw new Fault(
      "conflict",
      `Expected the PostgreSQL in \`${dataDirectory}\` to be free, but process ${place.owner.pid} ` +
        "holds it. Stop that process, or choose another data folder.",
    );
  }
  return place;
}

/** Replaces the record; it is on the disk before this returns. */
export async function writePlace(dataDirectory: string, place: Place): Promise<void> {
  const file = join(dataDirectory, "place.json");
  try {
    await replaceFile(file, `${JSON.stringify(place)}\n`);
  } catch (error) {
    throw explainFileError(error, `to write \`${file}\``);
  }
}

/** Records that nothing runs any more, also on a full disk: without a record nothing runs either. */
export async function clearOwner(dataDirectory: string, place: Place): Promise<void> {
  const cleared = { ...place, socketDirectory: null, owner: null };
  await writePlace(dataDirectory, cleared).catch(() =>
    rm(join(dataDirectory, "place.json"), { force: true }),
  );
}

/** A folder for the socket that is short enough, and that nobody but `uid` may enter. */
export async function prepareSocketDirectory(
  recorded: string | null,
  temporaryDirectories: readonly string[],
  uid: number,
): Promise<string> {
  // Only a folder of ours that is still closed is cleared: in /tmp anybody may have taken its name.
  if (recorded !== null) {
    const found = await lstat(recorded).catch(() => null);
    if (found?.isDirectory() && (found.mode & 0o077) === 0) {
      await rm(recorded, { recursive: true, force: true }).catch(() => undefined);
    }
  }
  let failure: unknown = null;
  for (const parent of temporaryDirectories) {
    if (Buffer.byteLength(parent) + "/landfall-XXXXXX".length > socketDirectoryBytesMax) continue;
    try {
      const directory = await mkdtemp(join(parent, "landfall-"));
      await chmod(directory, 0o700);
      if (uid !== process.getuid?.()) await chown(directory, uid, uid);
      return directory;
    } catch (error) {
      failure = error;
    }
  }
  throw explainFileError(
    failure ??
      new Error(`No folder for a socket is short enough: ${temporaryDirectories.join(", ")}.`),
    `to make a folder for PostgreSQL's socket in \`${temporaryDirectories.join("` or `")}\``,
  );
}

function newPlace(): Place {
  const mark = `landfall-${randomBytes(8).toString("hex")}`;
  return { format: placeFormat, mark, socketDirectory: null, binaries: null, owner: null };
}
