/**
 * The bytes of a content store in a folder, by digest: `blobs/sha256/ab/ab12…`, and the folder where
 * files wait until they are whole.
 */
import { type FileHandle, open, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Digest } from "../model/json.ts";
import { orNull, type StagedFile } from "./durable-file.ts";

export interface BlobFolder {
  /** A path for a file that is being written, on the same file system, never given out twice. */
  temporaryPath(): string;
  /** Opens content for reading, or null; the caller closes it. */
  open(digest: Digest): Promise<{ handle: FileHandle; size: number } | null>;
  size(digest: Digest): Promise<number | null>;
  /** Moves a finished file to its place. */
  keep(staged: StagedFile, digest: Digest): Promise<void>;
}

/** The blobs of the store in this folder. */
export function createBlobFolder(
  directory: string,
  random: (size: number) => Uint8Array,
): BlobFolder {
  const pathOf = (digest: Digest) => {
    const hex = digest.slice(7);
    return join(directory, "blobs", "sha256", hex.slice(0, 2), hex);
  };
  return {
    temporaryPath: () => join(directory, "temporary", Buffer.from(random(16)).toString("hex")),
    async open(digest) {
      const handle = await orNull(open(pathOf(digest), "r"));
      if (!handle) return null;
      try {
        return { handle, size: (await handle.stat()).size };
      } catch (error) {
        await handle.close();
        throw error;
      }
    },
    size: async (digest) => (await orNull(stat(pathOf(digest))))?.size ?? null,
    keep: (staged, digest) => staged.moveTo(pathOf(digest)),
  };
}
