/** A repository of a content store in a folder as source and target of content, without HTTP. */
import type { ContentTarget, Descriptor, OpenContent } from "./content.ts";
import { ContentFault } from "./content-fault.ts";
import { collect, mismatch, verifyContent } from "./content-stream.ts";
import type { FolderRepository } from "./folder-repository.ts";
import type { FolderStore } from "./folder-store.ts";
import {
  imageManifestBytesMax,
  isImageManifestType,
  parseImageManifest,
} from "./image-manifest.ts";

/** The repository `name` of this store. */
export function folderContent(store: FolderStore, name: string): ContentTarget {
  const repository = store.repository(name);
  const place = `the repository ${name} in the folder ${store.directory}`;
  return {
    name: place,
    stat: (digest) => repository.findImageManifest(digest),
    open: async (content) => verifyContent(content, read(repository, content, place), place),
    referrers: (digest) => repository.listReferrers(digest),
    async has(content) {
      const size = isImageManifestType(content.mediaType)
        ? (await repository.findImageManifest(content.digest))?.size
        : await repository.blobSize(content.digest);
      return size === content.size;
    },
    push: (content, open) =>
      isImageManifestType(content.mediaType)
        ? pushImageManifest(repository, content, open)
        : pushBlob(store, repository, content, open),
  };
}

/** The refusal to read content that is not there. */
export function missing(content: Pick<Descriptor, "digest">, place: string): ContentFault {
  return new ContentFault(
    "missing",
    content.digest,
    `Expected ${place} to have ${content.digest}, but it is not there. Push it, or name another digest.`,
  );
}

/** The refusal to keep an imageManifest before what it names. */
export function incomplete(content: Descriptor, lacking: readonly Descriptor[], place: string) {
  const shown = lacking.slice(0, 5).map((child) => child.digest);
  return new ContentFault(
    "missing",
    content.digest,
    `Expected ${place} to have all that the imageManifest ${content.digest} names, but ${lacking.length} are missing: ${shown.join(", ")}. Push those first.`,
  );
}

// Opened at the first read, so a stream that nobody reads holds no file open.
async function* read(repository: FolderRepository, content: Descriptor, place: string) {
  if (isImageManifestType(content.mediaType)) {
    const bytes = await repository.readImageManifest(content.digest);
    if (!bytes) throw missing(content, place);
    yield bytes;
  } else {
    const stream = await repository.readBlob(content.digest);
    if (!stream) throw missing(content, place);
    yield* stream;
  }
}

async function pushImageManifest(
  repository: FolderRepository,
  content: Descriptor,
  open: OpenContent,
): Promise<void> {
  const place = `the repository ${repository.name}`;
  const bytes = await collect(
    verifyContent(content, await open(), "the source"),
    imageManifestBytesMax,
  );
  const parsed = parseImageManifest(bytes, content.mediaType);
  const lacking = await repository.missingChildren(parsed);
  if (lacking.length > 0) throw incomplete(content, lacking, place);
  await repository.putImageManifest(bytes, parsed);
}

async function pushBlob(
  store: FolderStore,
  repository: FolderRepository,
  content: Descriptor,
  open: OpenContent,
): Promise<void> {
  const staged = await store.stage();
  try {
    for await (const piece of await open()) {
      if (staged.size() + piece.length > content.size) {
        throw mismatch(content.digest, "the source", `more than ${content.size} bytes`);
      }
      await staged.write(piece);
    }
    const digest = await staged.finish();
    if (digest !== content.digest || staged.size() !== content.size) {
      throw mismatch(content.digest, "the source", `${staged.size()} bytes with digest ${digest}`);
    }
    await repository.addBlob(staged, digest);
  } finally {
    await staged.discard();
  }
}
