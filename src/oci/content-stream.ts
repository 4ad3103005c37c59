/**
 * Reading content without trusting where it comes from: size and digest are checked as it flows, in
 * bounded memory.
 *
 * Invariant: whoever reads to the end of a verified stream has read exactly the bytes that the digest
 * names. The last piece is held back until the whole is known to match.
 */
import { createHash } from "node:crypto";
import { Fault } from "../model/fault.ts";
import { type Digest, digestOf } from "../model/json.ts";
import type { ContentSource, ContentStream, Descriptor, OpenContent } from "./content.ts";
import { ContentFault } from "./content-fault.ts";

/** Passes the bytes on, and throws instead of giving out the last ones when they do not match. */
export async function* verifyContent(
  content: Descriptor,
  stream: ContentStream,
  place: string,
): AsyncGenerator<Uint8Array> {
  const hash = createHash("sha256");
  let held: Uint8Array | null = null;
  for await (const piece of checkSize(content, stream, place)) {
    if (held) yield held;
    hash.update(piece);
    held = piece;
  }
  const got = `sha256:${hash.digest("hex")}`;
  if (got !== content.digest) throw mismatch(content.digest, place, `bytes with digest ${got}`);
  if (held) yield held;
}

/** Passes the bytes on, and throws unless there are exactly as many as the descriptor says. */
export async function* checkSize(
  content: Descriptor,
  stream: ContentStream,
  place: string,
): AsyncGenerator<Uint8Array> {
  let received = 0;
  for await (const piece of stream) {
    received += piece.length;
    if (received > content.size) {
      throw mismatch(content.digest, place, `more than the ${content.size} bytes it should have`);
    }
    yield piece;
  }
  if (received < content.size) {
    throw mismatch(content.digest, place, `${received} of its ${content.size} bytes`);
  }
}

/** All bytes of a stream, refused beyond `sizeMax`. */
export async function collect(stream: ContentStream, sizeMax: number): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of stream) {
    size += piece.length;
    if (size > sizeMax) {
      throw new Fault("too_large", `Expected at most ${sizeMax} bytes, got more. Make it smaller.`);
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces, size);
}

/** The verified bytes of something small, such as an imageManifest. */
export async function readContent(
  source: ContentSource,
  content: Descriptor,
  sizeMax: number,
): Promise<Buffer> {
  if (content.size > sizeMax) {
    throw new ContentFault(
      "too_large",
      content.digest,
      `Expected ${content.digest} in ${source.name} to have at most ${sizeMax} bytes, got ${content.size}. Make it smaller.`,
    );
  }
  return collect(await source.open(content), sizeMax);
}

/** Content that is in memory already. */
export function contentOf(bytes: Uint8Array): OpenContent {
  return async () => oneByOne([bytes]);
}

/** The descriptor of bytes in memory. */
export function describeContent(mediaType: string, bytes: Uint8Array): Descriptor {
  return { mediaType, digest: digestOf(bytes), size: bytes.length };
}

/** The refusal of bytes that are not those that the digest names. */
export function mismatch(digest: Digest, place: string, got: string): ContentFault {
  return new ContentFault(
    "mismatch",
    digest,
    `Expected ${place} to give the content ${digest}, got ${got}. The content is damaged or was replaced; push it again.`,
  );
}

async function* oneByOne(pieces: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* pieces;
}
