/**
 * Artifacts: a packed directory in a registry, named by the digest of its imageManifest.
 *
 *   imageManifest (artifactType, annotations) → empty config
 *                                             → one layer: the directory, packed
 *
 * Invariant: the same directory, type and annotations give the same digest. No time gets in unless
 * the caller puts one into the annotations.
 */
import { createReadStream } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { canonicalJson, type Digest } from "../model/json.ts";
import type { Annotations, ContentSource, ContentTarget, Descriptor } from "./content.ts";
import { ContentFault } from "./content-fault.ts";
import { contentOf, describeContent, readContent } from "./content-stream.ts";
import { missing } from "./folder-content.ts";
import { imageManifestBytesMax, mediaTypes, parseImageManifest } from "./image-manifest.ts";
import { packDirectoryToFile } from "./pack.ts";
import { type UnpackLimits, unpack } from "./unpack.ts";

export const componentArtifactType = "application/vnd.landfall.component.v1";
export const contentLayerType = "application/vnd.landfall.content.v1.tar+gzip";

const emptyConfig = Buffer.from("{}");

export interface WriteArtifactOptions {
  /** Such as `componentArtifactType`. */
  readonly artifactType: string;
  readonly directory: string;
  readonly annotations?: Annotations;
  /** Where the packed file waits while it is pushed; the folder above `directory` by default. */
  readonly workDirectory?: string;
}

export interface Artifact {
  readonly digest: Digest;
  readonly artifactType: string | null;
  readonly annotations: Annotations;
  /** All of it: imageManifest, config and layers. */
  readonly sizeBytes: number;
}

/** Packs a directory and pushes it; the digest names the imageManifest. */
export async function writeArtifact(
  target: ContentTarget,
  options: WriteArtifactOptions,
): Promise<{ digest: Digest; sizeBytes: number }> {
  const directory = resolve(options.directory);
  const work = await mkdtemp(join(options.workDirectory ?? dirname(directory), ".pack-"));
  try {
    const file = join(work, "layer.tar.gz");
    const packed = await packDirectoryToFile(directory, file);
    const layer = { mediaType: contentLayerType, digest: packed.digest, size: packed.sizeBytes };
    const config = describeContent(mediaTypes.empty, emptyConfig);
    const bytes = Buffer.from(encodeImageManifest(options, config, layer));
    const root = describeContent(mediaTypes.imageManifest, bytes);
    if (!(await target.has(root))) {
      if (!(await target.has(config))) await target.push(config, contentOf(emptyConfig));
      if (!(await target.has(layer))) await target.push(layer, async () => createReadStream(file));
      await target.push(root, contentOf(bytes));
    }
    return { digest: root.digest, sizeBytes: root.size + config.size + layer.size };
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** Verifies an artifact and unpacks it into a directory that is new or empty. */
export async function readArtifact(
  source: ContentSource,
  digest: Digest,
  directory: string,
  limits: Partial<UnpackLimits> = {},
): Promise<Artifact> {
  const root = await source.stat(digest);
  if (!root) throw missing({ digest }, source.name);
  const bytes = await readContent(source, root, imageManifestBytesMax);
  const parsed = parseImageManifest(bytes, root.mediaType);
  const layers = parsed.blobs.filter((blob) => blob.mediaType === contentLayerType);
  const [layer] = layers;
  if (!layer || layers.length > 1) {
    throw new ContentFault(
      "malformed",
      digest,
      `Expected ${digest} in ${source.name} to be an artifact with one layer of type ${contentLayerType}, got ${layers.length}. Build it again.`,
    );
  }
  await unpack(await source.open(layer), directory, limits);
  const sizeBytes = parsed.blobs.reduce((sum, blob) => sum + blob.size, root.size);
  return {
    digest,
    artifactType: parsed.artifactType,
    annotations: parsed.annotations,
    sizeBytes,
  };
}

function encodeImageManifest(
  options: WriteArtifactOptions,
  config: Descriptor,
  layer: Descriptor,
): string {
  const annotations = options.annotations ?? {};
  return canonicalJson({
    schemaVersion: 2,
    mediaType: mediaTypes.imageManifest,
    artifactType: options.artifactType,
    config: { ...config, data: emptyConfig.toString("base64") },
    layers: [layer],
    ...(Object.keys(annotations).length > 0 ? { annotations } : {}),
  });
}
