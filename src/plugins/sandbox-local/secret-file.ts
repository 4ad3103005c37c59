/** Small private files that are made once: the first value wins for ever. */
import { link, readFile, rm } from "node:fs/promises";
import { writeNewFile } from "../../files/replace-file.ts";
import { errorCode } from "../../model/file-fault.ts";

/** Makes a file unless it is there, and gives what it holds: the first value wins for ever. */
export async function makeOnce(path: string, make: () => Promise<unknown>): Promise<unknown> {
  const found = await readJson(path);
  if (found !== null) return found;
  const aside = `${path}.new`;
  await rm(aside, { force: true });
  await writeNewFile(aside, `${JSON.stringify(await make(), null, 2)}\n`);
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
