/**
 * Files that another program may have written: never opened through a link, since a job may write into
 * its own folder, and never read beyond a size.
 */
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { Fault } from "../model/fault.ts";

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
