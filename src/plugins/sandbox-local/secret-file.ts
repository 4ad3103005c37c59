/** Small private files, replaced whole or made once. */
import { link, open, readFile, rename, rm } from "node:fs/promises";
import { errorCode } from "../../model/file-fault.ts";

/** Replaces a file by rename; nobody but its owner may read it. */
export async function replaceFile(path: string, value: unknown): Promise<void> {
  const aside = `${path}.new`;
  await writeFlushed(aside, value);
  await rename(aside, path);
}

/** Makes a file unless it is there, and gives what it holds: the first value wins for ever. */
export async function makeOnce(path: string, make: () => Promise<unknown>): Promise<unknown> {
  const found = await readJson(path);
  if (found !== null) return found;
  const aside = `${path}.new`;
  await rm(aside, { force: true });
  await writeFlushed(aside, await make());
  await link(aside, path).catch((error: unknown) => {
    if (errorCode(error) !== "EEXIST") throw error;
  });
  await rm(aside, { force: true });
  return readJson(path);
}

/** The file's JSON value, or null when it is not there. */
export async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    if (errorCode(error) === "ENOENT") return null;
    throw error;
  }
}

async function writeFlushed(path: string, value: unknown): Promise<void> {
  const file = await open(path, "w", 0o600);
  try {
    await file.writeFile(`${JSON.stringify(value, null, 2)}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
}
