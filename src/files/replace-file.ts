/**
 * A file is there whole or not at all, and only its owner may read it: written beside under a hidden
 * name, flushed, renamed into place, and the folder flushed, so that it also survives a loss of power.
 *
 * Invariants: a failed attempt leaves the old file and nothing else; nothing is written through a link;
 * what a process left that was killed in between (a private key, perhaps) goes when it starts again.
 */
import { randomUUID } from "node:crypto";
import { open, readdir, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

const unique = /\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Replaces a file, or makes it. Several may do so at once: the last rename wins. */
export async function replaceFile(path: string, content: string): Promise<void> {
  const beside = join(dirname(path), `.${basename(path)}.${randomUUID()}`);
  try {
    await writeNewFile(beside, content);
    await rename(beside, path);
  } catch (error) {
    await rm(beside, { force: true }).catch(() => undefined);
    throw error;
  }
  await flushFolder(dirname(path));
}

/** Removes what was left beside these files by a process that was killed while it replaced one. */
export async function removeUnfinished(paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    const names = await readdir(dirname(path)).catch(() => []);
    const start = `.${basename(path)}.`;
    const left = names.filter((name) => name.startsWith(start) && unique.test(name));
    for (const name of left) await rm(join(dirname(path), name), { force: true });
  }
}

/** Writes and flushes a file that must not exist yet; the caller flushes the folder. */
export async function writeNewFile(path: string, content: string): Promise<void> {
  await using file = await open(path, "wx", 0o600);
  await file.writeFile(content);
  await file.sync();
}

/** Makes new names in a folder survive a loss of power. */
export async function flushFolder(path: string): Promise<void> {
  await using folder = await open(path, "r");
  await folder.sync();
}
