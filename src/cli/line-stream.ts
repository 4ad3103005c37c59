/**
 * Text that arrives in pieces, taken apart into lines (ndjson) and messages (server-sent events).
 *
 * Invariant: a line has a largest size, so that no server can fill the reader's memory.
 */
import { Fault } from "../model/fault.ts";

const lineBytesMax = 16 * 1024 * 1024;

/** The lines of a stream of bytes, without their ends; the last one also when it has no end. */
export async function* readLines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  // Pieces of the unfinished line are joined once, not at every chunk: a long line stays linear.
  let pieces: string[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    const parts = decoder.decode(chunk, { stream: true }).split("\n");
    const [first = "", ...rest] = parts;
    size += first.length;
    if (size > lineBytesMax) {
      throw new Fault(
        "too_large",
        `Expected lines of at most ${lineBytesMax} bytes, got a longer one.`,
      );
    }
    pieces.push(first);
    for (const part of rest) {
      yield stripReturn(pieces.join(""));
      pieces = [part];
      size = part.length;
    }
  }
  const last = stripReturn(pieces.join("") + decoder.decode());
  if (last !== "") yield last;
}

/** The `data` of each server-sent event; comments, which keep the connection awake, give nothing. */
export async function* readServerSentEvents(
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<string> {
  let data: string[] = [];
  for await (const line of readLines(chunks)) {
    if (line === "") {
      if (data.length > 0) yield data.join("\n");
      data = [];
    } else if (line.startsWith("data:")) {
      data.push(line.slice(5).replace(/^ /, ""));
    }
  }
}

function stripReturn(line: string): string {
  return line.endsWith("\r") ? line.slice(0, -1) : line;
}
