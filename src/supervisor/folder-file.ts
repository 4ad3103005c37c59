/**
 * Small files of the supervisor's folder, replaced by rename: a reader sees the old or the new one, whole.
 */
import { readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

const fileBytesMax = 1024 * 1024;

/** Replaces the file; a failed attempt leaves the old one and nothing else. */
export function replaceFile(file: string, value: unknown): void {
  const next = join(dirname(file), `.${basename(file)}.${process.pid}.tmp`);
  try {
    writeFileSync(next, `${JSON.stringify(value)}\n`, { mode: 0o600 });
    renameSync(next, file);
  } catch (error) {
    try {
      rmSync(next, { force: true });
    } catch {
      // The first failure is the one to tell.
    }
    throw error;
  }
}

/** The file's JSON value, or null when there is no such file, or none that can be read as JSON. */
export function readJsonFile(file: string): unknown {
  try {
    if (statSync(file).size > fileBytesMax) return null;
    return JSON.parse(readFileSync(file, "utf8"));
  } catch {
    return null;
  }
}
