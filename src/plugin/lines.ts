/**
 * Bytes to lines, with a bound: of a line without end only the beginning is kept, so that a program
 * that never breaks its lines cannot fill the memory, and no secret is cut in two where it is looked for.
 */
import type { Readable } from "node:stream";

const newline = 10;
const carriageReturn = 13;

/** Calls `onLine` for every line of the stream, and resolves at its end. */
export async function readLines(
  stream: Readable,
  lineBytesMax: number,
  onLine: (line: string) => void,
): Promise<void> {
  let pending: Buffer[] = [];
  let pendingBytes = 0;
  let dropped = 0;

  function take(part: Buffer): void {
    const kept = part.subarray(0, Math.max(0, lineBytesMax - pendingBytes));
    if (kept.byteLength > 0) pending.push(kept);
    pendingBytes += kept.byteLength;
    dropped += part.byteLength - kept.byteLength;
  }

  function flush(): void {
    let line = Buffer.concat(pending);
    if (line.at(-1) === carriageReturn) line = line.subarray(0, -1);
    const mark = dropped > 0 ? ` … (${dropped} more bytes in this line)` : "";
    pending = [];
    pendingBytes = 0;
    dropped = 0;
    onLine(line.toString("utf8") + mark);
  }

  for await (const chunk of stream) {
    let rest = Buffer.from(chunk);
    for (let at = rest.indexOf(newline); at >= 0; at = rest.indexOf(newline)) {
      take(rest.subarray(0, at));
      flush();
      rest = rest.subarray(at + 1);
    }
    take(rest);
  }
  if (pendingBytes > 0) flush();
}
