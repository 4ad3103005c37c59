/**
 * An OCI image layout folder as source and target of content: `oci-layout`, `index.json`,
 * `blobs/sha256/…`. It is how content is carried without a registry.
 *
 * Invariant: `index.json` lists every imageManifest in the folder, and lists one only after
 * everything that it names is there. One process writes to a layout at a time.
 */
import { createReadStream } from "node:fs";
import { open as openFile, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Digest } from "../model/json.ts";
import type { ContentTarget, Descriptor, OpenContent } from "./content.ts";
import { ContentFault } from "./content-fault.ts";
import { readContent, verifyContent } from "./content-stream.ts";
import { ensureDirectory, orNull, replaceFile, stageFile } from "./durable-file.ts";
import { incomplete, missing } from "./folder-content.ts";
import {
  imageManifestBytesMax,
  isImageManifestType,
  mediaTypes,
  parseImageManifest,
} from "./image-manifest.ts";

const indexBytesMax = 16 * 1024 * 1024;

interface Index {
  readonly schemaVersion: 2;
  readonly mediaType: string;
  readonly manifests: readonly Descriptor[];
}

/** Opens (or makes) a layout folder. */
export async function openLayout(
  directory: string,
  random: (size: number) => Uint8Array,
): Promise<ContentTarget> {
  await ensureDirectory(join(directory, "blobs", "sha256"));
  const place = `the layout ${directory}`;
  const indexPath = join(directory, "index.json");
  const pathOf = (digest: Digest) => join(directory, "blobs", "sha256", digest.slice(7));
  const temporaryPath = () => join(directory, `.${Buffer.from(random(16)).toString("hex")}`);
  const marker = join(directory, "oci-layout");
  if (!(await orNull(stat(marker)))) {
    await replaceFile(temporaryPath(), marker, '{"imageLayoutVersion":"1.0.0"}');
  }
  // index.json is read, changed and replaced: one change at a time.
  let lastChange: Promise<void> = Promise.resolve();

  const has = async (content: Descriptor) =>
    (await orNull(stat(pathOf(content.digest))))?.size === content.size;

  const layout: ContentTarget = {
    name: place,
    async stat(digest) {
      const { manifests } = await readIndex(indexPath);
      return manifests.find((entry) => entry.digest === digest) ?? null;
    },
    open: async (content) =>
      verifyContent(content, readFileOrFail(pathOf(content.digest), content, place), place),
    async referrers(digest) {
      const found: Descriptor[] = [];
      for (const entry of (await readIndex(indexPath)).manifests) {
        const bytes = await readContent(layout, entry, imageManifestBytesMax);
        const parsed = parseImageManifest(bytes, entry.mediaType);
        if (parsed.subject !== digest) continue;
        const { artifactType } = parsed;
        found.push(artifactType === null ? entry : { ...entry, artifactType });
      }
      return found;
    },
    async has(content) {
      if (!isImageManifestType(content.mediaType)) return has(content);
      return (await layout.stat(content.digest))?.size === content.size;
    },
    async push(content, open) {
      await pushFile(temporaryPath(), pathOf(content.digest), content, open);
      if (!isImageManifestType(content.mediaType)) return;
      const bytes = await readContent(layout, content, imageManifestBytesMax);
      const parsed = parseImageManifest(bytes, content.mediaType);
      const lacking: Descriptor[] = [];
      for (const child of [...parsed.blobs, ...parsed.imageManifests]) {
        if (!(await layout.has(child))) lacking.push(child);
      }
      if (lacking.length > 0) throw incomplete(content, lacking, place);
      const change = lastChange.then(() => addToIndex(temporaryPath(), indexPath, content));
      lastChange = change.catch(() => undefined);
      await change;
    },
  };
  return layout;
}

// Opened at the first read, so a stream that nobody reads holds no file open.
async function* readFileOrFail(path: string, content: Descriptor, place: string) {
  const handle = await orNull(openFile(path, "r"));
  if (!handle) throw missing(content, place);
  yield* createReadStream("", { fd: handle });
}

async function pushFile(
  temporaryPath: string,
  path: string,
  content: Descriptor,
  open: OpenContent,
): Promise<void> {
  const staged = await stageFile(temporaryPath);
  try {
    for await (const piece of verifyContent(content, await open(), "the source")) {
      await staged.write(piece);
    }
    await staged.finish();
    await staged.moveTo(path);
  } finally {
    await staged.discard();
  }
}

async function addToIndex(
  temporaryPath: string,
  path: string,
  { mediaType, digest, size }: Descriptor,
): Promise<void> {
  const index = await readIndex(path);
  if (index.manifests.some((entry) => entry.digest === digest)) return;
  const manifests = [...index.manifests, { mediaType, digest, size }];
  await replaceFile(temporaryPath, path, JSON.stringify({ ...index, manifests }));
}

async function readIndex(path: string): Promise<Index> {
  const found = await orNull(stat(path));
  if (!found) return { schemaVersion: 2, mediaType: mediaTypes.imageIndex, manifests: [] };
  if (found.size > indexBytesMax) {
    throw new ContentFault(
      "too_large",
      null,
      `Expected ${path} to have at most ${indexBytesMax} bytes.`,
    );
  }
  const bytes = await readFile(path);
  const { imageManifests } = parseImageManifest(bytes, mediaTypes.imageIndex);
  return { schemaVersion: 2, mediaType: mediaTypes.imageIndex, manifests: imageManifests };
}
