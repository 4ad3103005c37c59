/**
 * Whether the bundles in a folder are those of today's sources. Plain JavaScript, so that a command that
 * finds them fresh does not pay for Node's TypeScript: 60 ms.
 */
import { createHash } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";

export const recordFile = ".hash";
/** Another Node may read another form. */
export const form = process.version;

/**
 * True when no source has changed since these files were made.
 * @param {string} root
 * @param {string} target
 * @param {readonly string[]} files
 * @returns {Promise<boolean>}
 */
export async function isFresh(root, target, files) {
  const text = await readFile(join(target, recordFile), "utf8").catch(() => null);
  if (text === null) return false;
  const record = parseRecord(text);
  if (record?.form !== form || record.hash !== (await hashOf(root, record.inputs))) return false;
  const found = await Promise.all(files.map((file) => stat(file).catch(() => null)));
  return found.every((each) => each !== null);
}

/**
 * Names, sizes and times of all inputs; null when one is gone, or newer than `newestMs`. Reading them
 * would take ten times as long.
 * @param {string} root
 * @param {readonly string[]} inputs
 * @param {number} [newestMs]
 * @returns {Promise<string | null>}
 */
export async function hashOf(root, inputs, newestMs = Number.POSITIVE_INFINITY) {
  const hash = createHash("sha256");
  const found = await Promise.all(inputs.map((input) => stat(join(root, input)).catch(() => null)));
  for (const [index, each] of found.entries()) {
    if (!each || each.mtimeMs > newestMs) return null;
    hash.update(`${inputs[index]}\n${each.size}\n${each.mtimeMs}\n`);
  }
  return hash.digest("hex");
}

/** @param {string} text */
function parseRecord(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
