/**
 * Starts and stops the PostgreSQL that comes with Landfall, on a unix socket in a folder that only its
 * user may enter.
 *
 *             start              ready                stop
 *   (nothing) -----> starting ---------> running --------------> (nothing)
 *       ^               |                   | killed, crashed
 *       +---- fault ----+                   v
 *       +---- the next start --------- remains: lock files, processes, an orphan postmaster
 *
 * Invariants: at most one postmaster serves a cluster; "ready" is said by the postmaster that was
 * started here, never by an orphan; fsync stays on; nothing listens on the network.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, open, readFile, rename, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Fault } from "../model/fault.ts";
import { explainFileError } from "../model/file-fault.ts";
import { ownProcess } from "../protocol/process-identity.ts";
import { type Binaries, findPackage, identitiesFor, prepareBinaries } from "./binaries.ts";
import { checkClusterVersion, databaseName, prepareCluster, userName } from "./cluster.ts";
import {
  commandUnder,
  defaultSpareUid,
  type Isolation,
  ownerUid,
  workingDirectoryPath,
} from "./isolation.ts";
import { clearOwner, type Place, prepareSocketDirectory, readPlace, writePlace } from "./place.ts";
import { endProcesses, removeLockFiles } from "./remains.ts";

const port = 5432;
const readyTimeoutMs = 60_000;
const stopTimeoutMs = 30_000;
const pollMs = 5;
const logBytesMax = 10 * 1024 * 1024;
const logTailBytes = 2000;

export interface PostgresOptions {
  /** Holds the cluster and all that belongs to it; made if missing, for this user alone. */
  readonly dataDirectory: string;
  /** Told of what a person may want to know, such as an orphan that was ended. */
  readonly log?: (message: string) => void;
  /** `auto`: as oneself, or for root in a user namespace, or else as a spare uid. */
  readonly isolation?: Isolation | "auto";
  readonly spareUid?: number;
  /** The package with the programs, when it is not the installed one. */
  readonly packageDirectory?: string;
  /** Where the socket, and a copy of the programs for a spare uid, may be put; tried in order. */
  readonly temporaryDirectories?: readonly string[];
}

export interface PostgresExit {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface Postgres {
  /** In the form that `pg` takes; the host is the socket's folder. */
  readonly connection: { host: string; port: number; user: string; database: string };
  readonly url: string;
  readonly pid: number;
  readonly isolation: Isolation;
  /** Resolves when the postmaster ends, whoever ended it. */
  readonly exited: Promise<PostgresExit>;
  /** Ends it with nothing lost, and removes its socket; a second call waits for the first. */
  stop(): Promise<void>;
}

/** Starts PostgreSQL on its data folder, after clearing what an earlier one left, and waits until it answers. */
export async function startPostgres(options: PostgresOptions): Promise<Postgres> {
  const dataDirectory = resolve(options.dataDirectory);
  await mkdir(dataDirectory, { recursive: true, mode: 0o700 }).catch((error) => {
    throw explainFileError(error, `to make the folder \`${dataDirectory}\``);
  });
  const found = await readPlace(dataDirectory);
  await checkClusterVersion(dataDirectory);
  await clearRemains(dataDirectory, found, options.log);

  const temporaryDirectories = options.temporaryDirectories ?? [tmpdir(), "/tmp", "/var/tmp"];
  const binaries = await prepareBinaries({
    packageDirectory: options.packageDirectory ?? findPackage(),
    identities: identitiesFor(
      options.isolation ?? "auto",
      process.getuid?.() ?? 0,
      options.spareUid ?? defaultSpareUid,
    ),
    dataDirectory,
    temporaryDirectories,
    copy: found.binaries,
  });
  const cluster = await prepareCluster(dataDirectory, binaries);
  const socketDirectory = await prepareSocketDirectory(
    found.socketDirectory,
    temporaryDirectories,
    ownerUid(binaries.identity),
  );
  const place = { ...found, socketDirectory, binaries: binaries.copy, owner: ownProcess() };
  return launch({ dataDirectory, cluster, place, binaries, socketDirectory });
}

interface Launch {
  readonly dataDirectory: string;
  readonly cluster: string;
  readonly place: Place;
  readonly binaries: Binaries;
  readonly socketDirectory: string;
}

async function launch(prepared: Launch): Promise<Postgres> {
  const { dataDirectory, cluster, place, binaries, socketDirectory } = prepared;
  const release = async () => {
    await endProcesses(place.mark);
    await rm(socketDirectory, { recursive: true, force: true });
    await clearOwner(dataDirectory, place);
  };
  try {
    await writePlace(dataDirectory, place);
    const child = await spawnPostmaster(prepared);
    const exited = new Promise<PostgresExit>((settle) => {
      child.once("exit", (exitCode, signal) => settle({ exitCode, signal }));
    });
    const pid = child.pid ?? 0;
    if (!(await waitUntilReady(child, cluster))) {
      child.kill("SIGQUIT");
      throw await startFault(dataDirectory);
    }
    let stopping: Promise<void> | null = null;
    const stop = async () => {
      if (isRunning(child)) child.kill("SIGINT");
      await Promise.race([exited, delay(stopTimeoutMs, undefined, { ref: false })]);
      await release();
    };
    return {
      connection: { host: socketDirectory, port, user: userName, database: databaseName },
      url: `postgresql://${userName}@localhost:${port}/${databaseName}?host=${encodeURIComponent(socketDirectory)}`,
      pid,
      isolation: binaries.identity.isolation,
      exited,
      stop: () => {
        stopping ??= stop();
        return stopping;
      },
    };
  } catch (error) {
    await release();
    throw error;
  }
}

/** Ends what an earlier start left running, and removes its locks, so that ours is the only postmaster. */
async function clearRemains(
  dataDirectory: string,
  place: Place,
  log: PostgresOptions["log"],
): Promise<void> {
  const cluster = join(dataDirectory, "cluster");
  const locked = (await stat(join(cluster, "postmaster.pid")).catch(() => null)) !== null;
  if (!locked && place.owner === null) return;
  const pids = await endProcesses(place.mark);
  if (pids.length > 0) {
    log?.(`Ended the PostgreSQL that an earlier start left running (process ${pids.join(", ")}).`);
  }
  await removeLockFiles(cluster).catch((error) => {
    throw explainFileError(error, `to write \`${cluster}\``);
  });
}

async function spawnPostmaster(prepared: Launch): Promise<ChildProcess> {
  const { dataDirectory, cluster, place, binaries, socketDirectory } = prepared;
  const settings = {
    listen_addresses: "",
    unix_socket_directories: socketDirectory,
    unix_socket_permissions: "0700",
    port,
    cluster_name: place.mark,
    fsync: "on",
    logging_collector: "off",
    log_destination: "stderr",
    log_checkpoints: "off",
    // Statements and the values in details may hold what no log may show.
    log_min_error_statement: "panic",
    log_error_verbosity: "terse",
    timezone: "UTC",
    log_timezone: "UTC",
  };
  const args = [
    `-D${workingDirectoryPath(cluster)}`,
    ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
  ];
  const program = join(binaries.directory, "bin", "postgres");
  const command = commandUnder(binaries.identity, program, args, cluster);
  const log = await openLog(dataDirectory);
  try {
    const child = spawn(command.file, command.args, {
      ...command.options,
      // Its own session: Ctrl-C reaches us, and we stop it after all that uses it.
      detached: true,
      stdio: ["ignore", log.fd, log.fd],
    });
    await once(child, "spawn");
    return child;
  } finally {
    await log.close();
  }
}

/** A file and no pipe, so that PostgreSQL does not depend on who started it. */
async function openLog(dataDirectory: string) {
  const file = join(dataDirectory, "postgres.log");
  try {
    const found = await stat(file).catch(() => null);
    if (found !== null && found.size > logBytesMax) await rename(file, `${file}.1`);
    return await open(file, "a", 0o600);
  } catch (error) {
    throw explainFileError(error, `to write \`${file}\``);
  }
}

/** True once the lock file names this very child and says ready; false when it ended or time is up. */
async function waitUntilReady(child: ChildProcess, cluster: string): Promise<boolean> {
  const deadline = performance.now() + readyTimeoutMs;
  while (isRunning(child) && performance.now() < deadline) {
    const lock = await readFile(join(cluster, "postmaster.pid"), "utf8").catch(() => "");
    const lines = lock.split("\n");
    if (Number(lines[0]) === child.pid && lines[7]?.trim() === "ready") return true;
    await delay(pollMs);
  }
  return false;
}

function isRunning(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null;
}

async function startFault(dataDirectory: string): Promise<Fault> {
  const file = join(dataDirectory, "postgres.log");
  const text = await readFile(file, "utf8").catch(() => "");
  const tail = text.slice(-logTailBytes).trim();
  if (/No space left on device|Disk quota exceeded/.test(tail)) {
    return new Fault(
      "unavailable",
      `Expected room for PostgreSQL to write in \`${dataDirectory}\`, but the disk is full. ` +
        "Free some space, then start again.",
    );
  }
  const last = tail.split("\n").slice(-3).join(" ");
  return new Fault(
    "unavailable",
    `Expected PostgreSQL to start, but it did not: ${last} See \`${file}\`, repair what it names, then start again.`,
  );
}
