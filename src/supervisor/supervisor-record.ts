/**
 * supervisor.json: which process supervises this folder.
 *
 * Invariant: one at a time. The record is made by `link`, which fails where there is one. A record whose
 * process is dead has one successor: whoever first links `<record>.next`, and then still finds the dead one.
 */
import { linkSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Fault } from "../model/fault.ts";
import { canonicalJson } from "../model/json.ts";
import { ProcessRecord } from "../protocol/job-folder.ts";
import { isAlive } from "../protocol/process-identity.ts";
import { supervisorRecordFile } from "../protocol/supervisor-folder.ts";
import { readJsonFile } from "./folder-file.ts";

/** How `bin/supervisor.ts` ends when another one supervises the folder. */
export const alreadySupervisedExitCode = 3;
const attemptsMax = 10;

/** Makes `own` the folder's supervisor; the folder's processes may then be touched by nobody else. */
export function claimFolder(directory: string, own: ProcessRecord): void {
  const file = join(directory, supervisorRecordFile);
  const draft = join(directory, `.${supervisorRecordFile}.${own.pid}.tmp`);
  writeFileSync(draft, `${JSON.stringify(own)}\n`, { mode: 0o600 });
  try {
    for (let attempt = 0; attempt < attemptsMax; attempt++) {
      if (tryLink(draft, file)) return;
      refuseLiving(directory, file);
      if (succeed(directory, file, draft)) return;
    }
  } finally {
    rmSync(draft, { force: true });
  }
  throw new Fault("conflict", `Expected to supervise ${directory}, but others keep claiming it.`);
}

/** Removes the record, if it is still this process's own. */
export function releaseFolder(directory: string, own: ProcessRecord): void {
  const file = join(directory, supervisorRecordFile);
  if (canonicalJson(readRecord(file)) === canonicalJson(own)) rmSync(file, { force: true });
}

function succeed(directory: string, file: string, draft: string): boolean {
  const next = `${file}.next`;
  if (!tryLink(draft, next)) {
    refuseLiving(directory, next);
    rmSync(next, { force: true });
    return false;
  }
  try {
    refuseLiving(directory, file);
    renameSync(draft, file);
    return true;
  } finally {
    rmSync(next, { force: true });
  }
}

function refuseLiving(directory: string, file: string): void {
  const record = readRecord(file);
  if (record === null || !isAlive(record)) return;
  throw new Fault(
    "conflict",
    `Expected no other supervisor of ${directory}, got process ${record.pid}. Use that one, or stop it first.`,
  );
}

function tryLink(draft: string, file: string): boolean {
  try {
    linkSync(draft, file);
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EEXIST") return false;
    throw error;
  }
}

function readRecord(file: string): ProcessRecord | null {
  const parsed = ProcessRecord.safeParse(readJsonFile(file));
  return parsed.success ? parsed.data : null;
}
