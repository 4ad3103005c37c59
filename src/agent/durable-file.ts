/**
 * Files that are either whole or not there, also after a loss of power: written beside, flushed,
 * renamed, and the folder flushed.
 *
 * Invariant: no file is written through a link, since a job may write into its own folder.
 */
import { constants } from "node:fs";
import { type FileHandle, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { Fault } from "../model/fault.ts";

/** Writes a file that only this user may read, replacing an older one in one step. */
export async function writeDurably(path: string, content: string): Promise<void> {
  const beside = `${path}.new`;
  await rm(beside, { force: true, recursive: true });
  await writeNew(beside, content);
  await rename(beside, path);
  await flushDirectory(dirname(path));
}

/** Writes and flushes a file that must not exist yet; the caller flushes the folder. */
export async function writeNew(path: string, content: string): Promise<void> {
  await using file = await open(path, "wx", 0o600);
  await file.writeFile(content);
  await file.sync();
}

/** Makes new names in a folder survive a loss of power. */
export async function flushDirectory(path: string): Promise<void> {
  await using directory = await open(path, "r");
  await directory.sync();
}

/** Opens a file that another program wrote, never through a link; null when there is none. */
export async function openOwn(path: string, flags: number): Promise<FileHandle | null> {
  try {
    return await open(path, flags | constants.O_NOFOLLOW);
  } catch (error) {
    if (isMissing(error)) return null;
    throw error;
  }
}

/** The text of a file of at most `bytesMax`, or null when there is none. */
export async function readText(path: string, bytesMax: number): Promise<string | null> {
  await using file = await openOwn(path, constants.O_RDONLY);
  if (!file) return null;
  const { size } = await file.stat();
  if (size > bytesMax) {
    throw new Fault(
      "too_large",
      `Expected ${path} to have at most ${bytesMax} bytes, got ${size}. Look at who wrote it.`,
    );
  }
  return file.readFile("utf8");
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}
