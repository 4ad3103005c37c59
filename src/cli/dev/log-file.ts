/**
 * The logs of the programs that `landfall dev` starts: bounded by turning over at a start, and read
 * from their end when something went wrong.
 */
import { open, rename, stat } from "node:fs/promises";

const logBytesMax = 5 * 1024 * 1024;
const tailBytesMax = 64 * 1024;

/** Moves a log that has grown too large aside, in place of the one before it. */
export async function turnOverLog(path: string): Promise<void> {
  if ((await logSize(path)) > logBytesMax) await rename(path, `${path}.1`);
}

/** How large a log is; 0 when there is none. */
export async function logSize(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    () => 0,
  );
}

/** The last lines of a log, but none before an offset: what was written since then. */
export async function readLogTail(
  path: string,
  fromByte: number,
  linesMax: number,
): Promise<string[]> {
  const size = await logSize(path);
  const start = Math.max(fromByte, size - tailBytesMax, 0);
  if (start >= size) return [];
  const file = await open(path, "r");
  try {
    const { buffer, bytesRead } = await file.read(
      Buffer.alloc(size - start),
      0,
      size - start,
      start,
    );
    const lines = buffer.subarray(0, bytesRead).toString("utf8").trimEnd().split("\n");
    return lines.slice(-linesMax);
  } finally {
    await file.close();
  }
}
