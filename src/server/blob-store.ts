/**
 * Blobs of the server: uploaded sources and log chunks. Written once, whole or not at all; a folder
 * here, a bucket in production.
 *
 * Invariant: what a server was writing when it was killed is gone when it starts again.
 */
import { createHash, randomUUID } from "node:crypto";
import { createReadStream, rmSync } from "node:fs";
import { mkdir, open, readFile, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Fault } from "../model/fault.ts";
import type { Digest } from "../model/json.ts";

export interface BlobStore {
  /** Writes bytes under a key; the blob is durable when this returns. The same key again is harmless. */
  write(key: string, content: Uint8Array): Promise<void>;
  /** Streams content whose digest must match; otherwise nothing is kept and a `Fault` is thrown. */
  writeStream(
    key: string,
    content: AsyncIterable<Uint8Array>,
    expected: { digest: Digest; sizeBytesMax: number },
  ): Promise<{ sizeBytes: number }>;
  read(key: string): Promise<Uint8Array | null>;
  /** A part of a blob; null when there is none that holds all of it. */
  readPart(key: string, offset: number, sizeBytes: number): Promise<Uint8Array | null>;
  openStream(key: string): Promise<{ sizeBytes: number; stream: NodeJS.ReadableStream } | null>;
}

const keyForm = /^[a-z0-9][a-z0-9._-]*(\/[a-z0-9][a-z0-9._-]*)*$/;

/** No key begins with a dot. */
const unfinishedFolder = ".unfinished";

/**
 * A folder of blobs: temporary file, flush, rename. Servers that share it have an `owner` each, and each
 * sweeps away what it left behind itself.
 */
export function createFolderBlobStore(directory: string, owner: string): BlobStore {
  const unfinished = join(directory, unfinishedFolder, encodeURIComponent(owner));
  rmSync(unfinished, { recursive: true, force: true });
  const pathOf = (key: string) => {
    if (!keyForm.test(key)) throw new Error(`Not a blob key: ${key}`);
    return join(directory, key);
  };
  return {
    async write(key, content) {
      await writeWhole(unfinished, pathOf(key), async function* whole() {
        yield content;
      });
    },
    async writeStream(key, content, { digest, sizeBytesMax }) {
      const hash = createHash("sha256");
      let sizeBytes = 0;
      await writeWhole(unfinished, pathOf(key), async function* checked() {
        for await (const chunk of content) {
          sizeBytes += chunk.byteLength;
          if (sizeBytes > sizeBytesMax) {
            throw new Fault(
              "too_large",
              `Expected at most ${sizeBytesMax} bytes, got more. Leave large files out of the source folder.`,
            );
          }
          hash.update(chunk);
          yield chunk;
        }
        const got = `sha256:${hash.digest("hex")}`;
        if (got !== digest) {
          throw new Fault(
            "invalid",
            `Expected content with digest ${digest}, got ${got}. Send it again.`,
          );
        }
      });
      return { sizeBytes };
    },
    async read(key) {
      return readFile(pathOf(key)).catch(nullWhenAbsent);
    },
    async readPart(key, offset, sizeBytes) {
      const file = await open(pathOf(key)).catch(nullWhenAbsent);
      if (!file) return null;
      try {
        const { buffer, bytesRead } = await file.read(
          Buffer.alloc(sizeBytes),
          0,
          sizeBytes,
          offset,
        );
        return bytesRead === sizeBytes ? buffer : null;
      } finally {
        await file.close();
      }
    },
    async openStream(key) {
      const path = pathOf(key);
      const found = await stat(path).catch(nullWhenAbsent);
      return found && { sizeBytes: found.size, stream: createReadStream(path) };
    },
  };
}

async function writeWhole(
  unfinished: string,
  path: string,
  content: () => AsyncIterable<Uint8Array>,
): Promise<void> {
  for (const folder of [unfinished, dirname(path)]) await mkdir(folder, { recursive: true });
  const temporary = join(unfinished, randomUUID());
  try {
    const file = await open(temporary, "wx", 0o600);
    try {
      for await (const chunk of content()) await file.writeFile(chunk);
      await file.datasync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

function nullWhenAbsent(error: NodeJS.ErrnoException): null {
  if (error.code === "ENOENT") return null;
  throw error;
}
