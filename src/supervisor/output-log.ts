/**
 * Bounds logs/<name>.log: beyond 5 MiB it is copied to <name>.log.1 and cut to nothing in place, since the
 * process holds the file open. Lines written between copy and cut are lost; the process never waits.
 */
import {
  closeSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { describeError } from "../model/fault.ts";
import type { Log } from "./log.ts";

export const logBytesMax = 5 * 1024 * 1024;

/** Turns the log over when it has grown too large: the newest `logBytesMax` bytes are kept aside. */
export function boundLog(file: string, log: Log): void {
  const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  if (size <= logBytesMax) return;
  try {
    writeFileSync(`${file}.1.tmp`, readEnd(file, size), { mode: 0o600 });
    renameSync(`${file}.1.tmp`, `${file}.1`);
  } catch (error) {
    // On a full disk the bound matters more than the lines: cutting is what frees space.
    log("warn", "process log not kept", { file, reason: describeError(error) });
    rmSync(`${file}.1.tmp`, { force: true });
  }
  truncateSync(file, 0);
}

function readEnd(file: string, size: number): Buffer {
  const end = Buffer.alloc(logBytesMax);
  const handle = openSync(file, "r");
  try {
    return end.subarray(0, readSync(handle, end, 0, logBytesMax, size - logBytesMax));
  } finally {
    closeSync(handle);
  }
}
