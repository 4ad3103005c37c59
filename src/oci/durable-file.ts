/**
 * Files that are there whole or not at all: written under a temporary name, hashed while they are
 * written, flushed, renamed into place, and the folder flushed too. A crash at any point leaves at
 * most a file in the temporary folder, which nobody reads.
 */
import { createHash } from "node:crypto";
import { type FileHandle, mkdir, open, readdir, rename, rm, stat, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Digest } from "../model/json.ts";

/** Bytes on their way into a file. */
export interface StagedFile {
  /** How many bytes have been written so far. */
  size(): number;
  write(bytes: Uint8Array): Promise<void>;
  /** Flushes, and gives the digest of all that was written; nothing can be written afterwards. */
  finish(): Promise<Digest>;
  /** Moves the finished file to its place, durably. */
  moveTo(path: string): Promise<void>;
  /** Removes it; harmless at any time, also after `moveTo`. */
  discard(): Promise<void>;
}

/** Starts a file at a temporary path that does not exist yet. */
export async function stageFile(path: string): Promise<StagedFile> {
  const handle = await open(path, "wx", 0o600);
  const hash = createHash("sha256");
  let written = 0;
  let moved = false;
  let closing: Promise<void> | null = null;
  const close = () => {
    closing ??= handle.close();
    return closing;
  };
  return {
    size: () => written,
    async write(bytes) {
      // The write runs on another thread, so hashing the same bytes meanwhile costs no time.
      const writing = writeAll(handle, bytes, written);
      hash.update(bytes);
      await writing;
      written += bytes.length;
    },
    async finish() {
      await handle.sync();
      await close();
      return `sha256:${hash.digest("hex")}`;
    },
    async moveTo(target) {
      await ensureDirectory(dirname(target));
      await rename(path, target);
      moved = true;
      await syncDirectory(dirname(target));
    },
    async discard() {
      await close().catch(() => undefined);
      if (!moved) await rm(path, { force: true });
    },
  };
}

/** Replaces a small file at once and durably. */
export async function replaceFile(
  temporaryPath: string,
  path: string,
  content: string | Uint8Array,
): Promise<void> {
  const staged = await stageFile(temporaryPath);
  try {
    await staged.write(typeof content === "string" ? Buffer.from(content) : content);
    await staged.finish();
    await staged.moveTo(path);
  } finally {
    await staged.discard();
  }
}

/** Makes a folder and those above it, and flushes every folder that got a new entry. */
export async function ensureDirectory(path: string): Promise<void> {
  const first = await mkdir(path, { recursive: true });
  if (first === undefined) return;
  const last = dirname(first);
  for (let parent = dirname(path); parent.length >= last.length; parent = dirname(parent)) {
    await syncDirectory(parent);
    if (parent === dirname(parent)) return;
  }
}

/** Removes a file durably; false when it was not there. */
export async function removeFile(path: string): Promise<boolean> {
  const removed = await orNull(unlink(path).then(() => true));
  if (removed) await syncDirectory(dirname(path));
  return removed ?? false;
}

/** Removes temporary files that nobody has written to since `before`: what crashes left behind. */
export async function removeStaleFiles(directory: string, before: Date): Promise<void> {
  for (const name of await readdir(directory)) {
    const path = join(directory, name);
    const found = await orNull(stat(path));
    if (found && found.mtimeMs < before.getTime()) await rm(path, { force: true, recursive: true });
  }
}

/** Null instead of an error that says that there is no such file or folder. */
export async function orNull<T>(promise: Promise<T>): Promise<T | null> {
  try {
    return await promise;
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : null;
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    throw error;
  }
}

async function writeAll(handle: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let offset = 0; offset < bytes.length; ) {
    const { bytesWritten } = await handle.write(
      bytes,
      offset,
      bytes.length - offset,
      position + offset,
    );
    offset += bytesWritten;
  }
}

async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
