/**
 * The journal's file: SQLite, flushed at every commit, so that nothing in it is forgotten by kill -9 or a
 * loss of power. Steps that come at the same time are committed together: a burst of jobs costs a few
 * flushes, not one each.
 *
 * Invariants: the file is locked, one agent per folder. Room on the disk is kept for it: where a commit
 * finds none, that room is given up and the commit tried once more, so that what was delivered can be
 * removed and an outcome taken while the disk is full.
 */
import { rmSync, statfsSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Fault } from "../model/fault.ts";
import { migrateJournal } from "./journal-schema.ts";
import type { Logger } from "./log.ts";

const lockWaitMs = 1000;
/** SQLite's own numbers for "another process has it locked", "no room" and "the disk failed". */
const sqliteCodes = { busy: 5, inputOutput: 10, full: 13 } as const;
/** SQLite's own number for a file that can give pages back. */
const incrementalVacuum = 2;
/** Checkpoints come early, so that the log beside the file fits into the room that is kept. */
const checkpointPages = 256;
const ballastBytes = 4 * 1024 * 1024;
/** The room is taken back once there is this many times as much. */
const restoreFactor = 4;
const restoreAgainMs = 5000;

export interface JournalFile {
  readonly database: DatabaseSync;
  /** One transaction for this alone, at once. */
  commit<Result>(act: () => Result): Result;
  /** One transaction for all that is queued in the same turn; rejects when it could not be committed. */
  queue(act: () => void): Promise<void>;
  /** The disk was full at the last look. */
  isLow(): boolean;
  close(): void;
}

export interface JournalFileOptions {
  readonly logger: Logger;
  /** Monotonic. */
  readonly clock: () => number;
}

interface Waiting {
  readonly act: () => void;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** Opens (or makes) the file; a `Fault` when another agent has it open. */
export function openJournalFile(path: string, options: JournalFileOptions): JournalFile {
  const database = openDatabase(path);
  const ballast = createBallast(`${path}-ballast`, options);
  let waiting: Waiting[] = [];

  function commit<Result>(act: () => Result): Result {
    try {
      const result = inTransaction(database, act);
      ballast.restore();
      return result;
    } catch (error) {
      if (!isDiskFull(error) || !ballast.release()) throw error;
      return inTransaction(database, act);
    }
  }

  function flush(): void {
    const batch = waiting;
    waiting = [];
    if (batch.length === 0) return;
    try {
      commit(() => {
        for (const { act } of batch) act();
      });
    } catch (error) {
      for (const { reject } of batch) reject(error);
      return;
    }
    for (const { resolve } of batch) resolve();
  }

  return {
    database,
    commit,
    queue: (act) =>
      new Promise((resolve, reject) => {
        if (waiting.push({ act, resolve, reject }) === 1) setImmediate(flush);
      }),
    isLow: ballast.isReleased,
    close() {
      flush();
      database.close();
    },
  };
}

/** True for "no room" of SQLite and of the file system. */
export function isDiskFull(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if ("errcode" in error && error.errcode === sqliteCodes.full) return true;
  return "code" in error && (error.code === "ENOSPC" || error.code === "EDQUOT");
}

function openDatabase(path: string): DatabaseSync {
  const database = new DatabaseSync(path);
  try {
    // Exclusive: the lock is taken by the first write and held until the process ends, however it ends.
    database.exec(`pragma busy_timeout = ${lockWaitMs}; pragma auto_vacuum = incremental;
      pragma locking_mode = exclusive; pragma journal_mode = wal; pragma synchronous = full;
      pragma wal_autocheckpoint = ${checkpointPages}`);
    inTransaction(database, () => migrateJournal(database, path));
    // Older agents made files that never become smaller; theirs are small, so this is quick.
    if (database.prepare("pragma auto_vacuum").get()?.auto_vacuum !== incrementalVacuum) {
      database.exec("pragma auto_vacuum = incremental; vacuum");
    }
    return database;
  } catch (error) {
    database.close();
    if (error instanceof Error && "errcode" in error && error.errcode === sqliteCodes.busy) {
      throw new Fault(
        "conflict",
        `Expected to be the only agent in this folder, but another one has ${path} open. Stop it first.`,
        { cause: error },
      );
    }
    throw error;
  }
}

function inTransaction<Result>(database: DatabaseSync, act: () => Result): Result {
  database.exec("begin immediate");
  try {
    const result = act();
    database.exec("commit");
    return result;
  } catch (error) {
    // After some failures SQLite has rolled back by itself.
    if (database.isTransaction) database.exec("rollback");
    throw error;
  }
}

/** Room that is kept by a file of zeros, told once when it is given up and once when it is back. */
function createBallast(path: string, { logger, clock }: JournalFileOptions) {
  let released = false;
  let triedAtMs = 0;

  function take(): boolean {
    try {
      const { bavail, bsize } = statfsSync(dirname(path));
      if (bavail * bsize < restoreFactor * ballastBytes) return false;
      writeFileSync(path, new Uint8Array(ballastBytes), { mode: 0o600 });
      return true;
    } catch {
      rmSync(path, { force: true });
      return false;
    }
  }

  if (!take()) {
    released = true;
    rmSync(path, { force: true });
    logger.error("the disk is nearly full; lines of jobs may give way, outcomes do not");
  }
  return {
    isReleased: () => released,
    release(): boolean {
      rmSync(path, { force: true });
      if (!released) {
        logger.error("the disk is full; lines of jobs give way, outcomes wait for room");
      }
      released = true;
      triedAtMs = clock();
      return true;
    },
    restore(): void {
      if (!released || clock() - triedAtMs < restoreAgainMs) return;
      triedAtMs = clock();
      if (!take()) return;
      released = false;
      logger.info("the disk has room again");
    },
  };
}
