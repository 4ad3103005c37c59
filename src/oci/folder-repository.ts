/**
 * One repository of the content store in a folder: which blobs and imageManifests it has, its tags,
 * and what refers to what.
 *
 * Order guards against crashes: bytes before marker, marker before referrer and tag; removal runs the
 * other way. So whatever a tag or a referrer names can be read.
 */
import { createReadStream } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { Fault } from "../model/fault.ts";
import { type Digest, isDigest } from "../model/json.ts";
import type { BlobFolder } from "./blob-folder.ts";
import type { Descriptor } from "./content.ts";
import { orNull, removeFile, replaceFile, type StagedFile, stageFile } from "./durable-file.ts";
import {
  describeImageManifest,
  type ParsedImageManifest,
  parseImageManifest,
} from "./image-manifest.ts";
import { checkMover, type createTurns } from "./tag-fence.ts";

const readPieceBytes = 256 * 1024;
const referrersMax = 1000;

interface RepositoryBlobs {
  blobSize(digest: Digest): Promise<number | null>;
  /** Reads a blob or a part of it (`end` inclusive); null when the repository does not have it. */
  readBlob(digest: Digest, part?: { start: number; end: number }): Promise<Readable | null>;
  /** Keeps a finished file, whose digest the caller has checked, as a blob of this repository. */
  addBlob(staged: StagedFile, digest: Digest): Promise<void>;
  /** Takes over a blob that another repository of the same store has. */
  mountBlob(digest: Digest): Promise<void>;
  removeBlob(digest: Digest): Promise<boolean>;
}

interface RepositoryManifests {
  findImageManifest(reference: string): Promise<Descriptor | null>;
  readImageManifest(digest: Digest): Promise<Buffer | null>;
  /** Keeps an imageManifest whose children are all there. */
  putImageManifest(bytes: Uint8Array, parsed: ParsedImageManifest): Promise<Digest>;
  removeImageManifest(digest: Digest): Promise<boolean>;
  listReferrers(digest: Digest): Promise<Descriptor[]>;
}

interface RepositoryTags {
  /** Lets a tag name an imageManifest; refused to an older try of a job than the one that moved it last. */
  moveTag(tag: string, digest: Digest, mover: string | null): Promise<void>;
  removeTag(tag: string, mover: string | null): Promise<boolean>;
  /** All tags, sorted. */
  listTags(): Promise<string[]>;
}

export interface FolderRepository extends RepositoryBlobs, RepositoryManifests, RepositoryTags {
  readonly name: string;
  /** False until something was pushed to it. */
  exists(): Promise<boolean>;
  /** What this document names and the repository lacks. */
  missingChildren(parsed: ParsedImageManifest): Promise<Descriptor[]>;
}

/** The repository in this folder, over the blobs of its store. */
export function createFolderRepository(
  directory: string,
  name: string,
  blobs: BlobFolder,
  inTurn: ReturnType<typeof createTurns>,
): FolderRepository {
  const ofBlobs = createBlobs(join(directory, "_blobs"), blobs);
  const ofManifests = createManifests(directory, blobs);
  return {
    name,
    ...ofBlobs,
    ...ofManifests,
    ...createTags(directory, blobs, inTurn),
    exists: async () =>
      (await exists(join(directory, "_blobs"))) || exists(join(directory, "_manifests")),
    async missingChildren(parsed) {
      const missing: Descriptor[] = [];
      for (const blob of parsed.blobs) {
        if ((await ofBlobs.blobSize(blob.digest)) !== blob.size) missing.push(blob);
      }
      for (const child of parsed.imageManifests) {
        const found = await ofManifests.findImageManifest(child.digest);
        if (found?.size !== child.size) missing.push(child);
      }
      return missing;
    },
  };
}

function createBlobs(folder: string, blobs: BlobFolder): RepositoryBlobs {
  const marker = (digest: Digest) => join(folder, digest.slice(7));
  const mark = (digest: Digest) => replaceFile(blobs.temporaryPath(), marker(digest), "");
  return {
    blobSize: async (digest) => ((await exists(marker(digest))) ? blobs.size(digest) : null),
    async readBlob(digest, part) {
      const opened = (await exists(marker(digest))) ? await blobs.open(digest) : null;
      if (!opened) return null;
      return createReadStream("", { fd: opened.handle, highWaterMark: readPieceBytes, ...part });
    },
    async addBlob(staged, digest) {
      await blobs.keep(staged, digest);
      await mark(digest);
    },
    mountBlob: mark,
    removeBlob: (digest) => removeFile(marker(digest)),
  };
}

function createManifests(directory: string, blobs: BlobFolder): RepositoryManifests {
  const marker = (digest: Digest) => join(directory, "_manifests", digest.slice(7));
  const tagPath = (tag: string) => join(directory, "_tags", tag);
  const referrerFolder = (subject: Digest) => join(directory, "_referrers", subject.slice(7));
  const put = (path: string, text: string) => replaceFile(blobs.temporaryPath(), path, text);

  async function findImageManifest(reference: string): Promise<Descriptor | null> {
    const digest = isDigest(reference) ? reference : await readText(tagPath(reference));
    const text = digest && isDigest(digest) ? await readText(marker(digest)) : null;
    return text === null ? null : (JSON.parse(text) as Descriptor);
  }

  async function readImageManifest(digest: Digest): Promise<Buffer | null> {
    const opened = (await exists(marker(digest))) ? await blobs.open(digest) : null;
    if (!opened) return null;
    try {
      return await opened.handle.readFile();
    } finally {
      await opened.handle.close();
    }
  }

  return {
    findImageManifest,
    readImageManifest,
    async putImageManifest(bytes, parsed) {
      const descriptor = describeImageManifest(bytes, parsed);
      const text = JSON.stringify(descriptor);
      const referrers = parsed.subject && referrerFolder(parsed.subject);
      if (referrers) await checkRoom(referrers, descriptor.digest);
      await keepBytes(blobs, bytes);
      await put(marker(descriptor.digest), text);
      if (referrers) await put(join(referrers, descriptor.digest.slice(7)), text);
      return descriptor.digest;
    },
    async removeImageManifest(digest) {
      const descriptor = await findImageManifest(digest);
      const bytes = descriptor && (await readImageManifest(digest));
      if (!bytes) return false;
      for (const tag of await listFolder(join(directory, "_tags"))) {
        if ((await readText(tagPath(tag))) === digest) await removeFile(tagPath(tag));
      }
      const { subject } = parseImageManifest(bytes, descriptor.mediaType);
      if (subject) await removeFile(join(referrerFolder(subject), digest.slice(7)));
      return removeFile(marker(digest));
    },
    async listReferrers(digest) {
      const found: Descriptor[] = [];
      for (const file of await listFolder(referrerFolder(digest))) {
        const text = await readText(join(referrerFolder(digest), file));
        if (text !== null) found.push(JSON.parse(text) as Descriptor);
      }
      return found;
    },
  };
}

/** The mover is written before the tag: a crash in between refuses an older try, never lets it through. */
function createTags(
  directory: string,
  blobs: BlobFolder,
  inTurn: ReturnType<typeof createTurns>,
): RepositoryTags {
  const tagPath = (tag: string) => join(directory, "_tags", tag);
  const moverPath = (tag: string) => join(directory, "_movers", tag);
  const put = (path: string, text: string) => replaceFile(blobs.temporaryPath(), path, text);

  function move<T>(tag: string, mover: string | null, act: () => Promise<T>): Promise<T> {
    return inTurn(tagPath(tag), async () => {
      checkMover(tag, mover, await readText(moverPath(tag)));
      if (mover !== null) await put(moverPath(tag), mover);
      return act();
    });
  }

  return {
    moveTag: (tag, digest, mover) => move(tag, mover, () => put(tagPath(tag), digest)),
    removeTag: (tag, mover) => move(tag, mover, () => removeFile(tagPath(tag))),
    listTags: () => listFolder(join(directory, "_tags")),
  };
}

async function keepBytes(blobs: BlobFolder, bytes: Uint8Array): Promise<void> {
  const staged = await stageFile(blobs.temporaryPath());
  try {
    await staged.write(bytes);
    await blobs.keep(staged, await staged.finish());
  } finally {
    await staged.discard();
  }
}

async function checkRoom(referrers: string, digest: Digest): Promise<void> {
  const names = await listFolder(referrers);
  if (names.length < referrersMax || names.includes(digest.slice(7))) return;
  throw new Fault(
    "too_large",
    `Expected at most ${referrersMax} imageManifests to refer to one subject. Delete old ones first.`,
  );
}

async function exists(path: string): Promise<boolean> {
  return (await orNull(stat(path))) !== null;
}

async function listFolder(path: string): Promise<string[]> {
  return ((await orNull(readdir(path))) ?? []).sort();
}

function readText(path: string): Promise<string | null> {
  return orNull(readFile(path, "utf8"));
}
