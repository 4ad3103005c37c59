/**
 * The content store in a folder: every blob and imageManifest of a registry, once, by digest.
 *
 *   blobs/sha256/ab/ab12…                            the bytes
 *   repositories/<name>/_blobs/ab12…                 empty: this repository has this blob
 *   repositories/<name>/_manifests/ab12…             JSON: descriptor of an imageManifest
 *   repositories/<name>/_tags/<tag>                  the digest it names
 *   repositories/<name>/_movers/<tag>                the try of a job that moved it last
 *   repositories/<name>/_referrers/<subject>/ab12…   JSON: descriptor of what refers to the subject
 *   temporary/…                                      files being written; swept when stale
 *
 * Invariant: a file outside `temporary/` is whole, and bytes in `blobs/` had their digest when they
 * were put there. A repository sees only what was pushed to it or mounted into it, so a token for one
 * opens no other. Names beginning with `_` cannot be part of a repository's name.
 */
import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { join } from "node:path";
import { createBlobFolder } from "./blob-folder.ts";
import { ensureDirectory, removeStaleFiles, type StagedFile, stageFile } from "./durable-file.ts";
import { createFolderRepository, type FolderRepository } from "./folder-repository.ts";
import { requireRepositoryName } from "./reference.ts";
import { createTurns } from "./tag-fence.ts";

/** How long an unfinished write is left alone before it counts as abandoned. */
export const temporaryLifetimeMs = 60 * 60 * 1000;

export interface FolderStore {
  readonly directory: string;
  /** One repository by its name (a `Fault` when it is none); it exists once something is in it. */
  repository(name: string): FolderRepository;
  /** Starts writing content that a repository will take over with `addBlob`. */
  stage(): Promise<StagedFile>;
  /** Removes what interrupted writes left behind long ago. */
  sweep(now: Date): Promise<void>;
}

/** Opens (or makes) the store; fails when the folder cannot be written. */
export async function openFolderStore(
  directory: string,
  options: { now: Date; random: (size: number) => Uint8Array },
): Promise<FolderStore> {
  const temporary = join(directory, "temporary");
  await ensureDirectory(join(directory, "blobs", "sha256"));
  await ensureDirectory(join(directory, "repositories"));
  await ensureDirectory(temporary);
  await access(temporary, constants.W_OK);
  const blobs = createBlobFolder(directory, options.random);
  const inTurn = createTurns();
  const sweep = (now: Date) =>
    removeStaleFiles(temporary, new Date(now.getTime() - temporaryLifetimeMs));
  await sweep(options.now);
  return {
    directory,
    repository(name) {
      const folder = join(directory, "repositories", requireRepositoryName(name));
      return createFolderRepository(folder, name, blobs, inTurn);
    },
    stage: () => stageFile(blobs.temporaryPath()),
    sweep,
  };
}
