/**
 * imageManifests and indexes: the JSON documents that name everything an artifact consists of.
 *
 * What is parsed here came from outside. Inside, a `ParsedImageManifest` has well-formed digests and
 * sizes, and a bounded number of children.
 */
import { type Digest, digestOf, isDigest } from "../model/json.ts";
import type { Annotations, Descriptor } from "./content.ts";
import { ContentFault } from "./content-fault.ts";

export const imageManifestBytesMax = 4 * 1024 * 1024;
const childrenMax = 10_000;

export const mediaTypes = {
  imageManifest: "application/vnd.oci.image.manifest.v1+json",
  imageIndex: "application/vnd.oci.image.index.v1+json",
  empty: "application/vnd.oci.empty.v1+json",
  dockerManifest: "application/vnd.docker.distribution.manifest.v2+json",
  dockerList: "application/vnd.docker.distribution.manifest.list.v2+json",
} as const;

/** The media types that registries keep as manifests. */
export const imageManifestTypes: ReadonlySet<string> = new Set([
  mediaTypes.imageManifest,
  mediaTypes.imageIndex,
  mediaTypes.dockerManifest,
  mediaTypes.dockerList,
]);

export interface ParsedImageManifest {
  readonly mediaType: string;
  readonly artifactType: string | null;
  readonly annotations: Annotations;
  /** Blobs that must be there first: config and layers. */
  readonly blobs: readonly Descriptor[];
  /** imageManifests that must be there first. */
  readonly imageManifests: readonly Descriptor[];
  /** What it refers to; need not exist. */
  readonly subject: Digest | null;
}

/** True for the media types that registries keep as manifests rather than as blobs. */
export function isImageManifestType(mediaType: string): boolean {
  return imageManifestTypes.has(mediaType);
}

/** Parses the bytes of an imageManifest or index; `mediaType` null takes the type from the document. */
export function parseImageManifest(
  bytes: Uint8Array,
  mediaType: string | null,
): ParsedImageManifest {
  const document = asObject(parseJson(bytes), "the document");
  const type = mediaType ?? document.mediaType;
  if (typeof type !== "string" || !isImageManifestType(type)) {
    throw malformed(`a media type out of ${[...imageManifestTypes].join(", ")}`, type);
  }
  if (document.mediaType !== undefined && document.mediaType !== type) {
    throw malformed(`\`mediaType\` to be ${type}`, document.mediaType);
  }
  if (document.schemaVersion !== 2) throw malformed("`schemaVersion` 2", document.schemaVersion);
  const isIndex = type === mediaTypes.imageIndex || type === mediaTypes.dockerList;
  const config = isIndex ? null : parseDescriptor(document.config, "config");
  const layers = isIndex ? [] : parseDescriptors(document.layers, "layers");
  return {
    mediaType: type,
    artifactType: optionalText(document.artifactType) ?? config?.mediaType ?? null,
    annotations: parseAnnotations(document.annotations),
    blobs: config ? [config, ...layers] : [],
    imageManifests: isIndex ? parseDescriptors(document.manifests, "manifests") : [],
    subject:
      document.subject === undefined ? null : parseDescriptor(document.subject, "subject").digest,
  };
}

/** The descriptor under which an imageManifest is listed: with artifact type and annotations. */
export function describeImageManifest(bytes: Uint8Array, parsed: ParsedImageManifest): Descriptor {
  const hasAnnotations = Object.keys(parsed.annotations).length > 0;
  return {
    mediaType: parsed.mediaType,
    digest: digestOf(bytes),
    size: bytes.length,
    ...(parsed.artifactType === null ? {} : { artifactType: parsed.artifactType }),
    ...(hasAnnotations ? { annotations: parsed.annotations } : {}),
  };
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (cause) {
    throw new ContentFault(
      "malformed",
      null,
      "Expected an imageManifest in JSON, got other bytes.",
      {
        cause,
      },
    );
  }
}

function parseDescriptors(value: unknown, field: string): Descriptor[] {
  if (!Array.isArray(value)) throw malformed(`\`${field}\` to be a list`, value);
  if (value.length > childrenMax) {
    throw malformed(`at most ${childrenMax} \`${field}\``, value.length);
  }
  return value.map((item, index) => parseDescriptor(item, `${field}[${index}]`));
}

function parseDescriptor(value: unknown, field: string): Descriptor {
  const { mediaType, digest, size, artifactType } = asObject(value, `\`${field}\``);
  if (typeof mediaType !== "string" || mediaType === "") {
    throw malformed(`\`${field}.mediaType\``, mediaType);
  }
  if (typeof digest !== "string" || !isDigest(digest)) {
    throw malformed(`\`${field}.digest\` of the form sha256:…`, digest);
  }
  if (typeof size !== "number" || !Number.isSafeInteger(size) || size < 0) {
    throw malformed(`\`${field}.size\` in bytes`, size);
  }
  const type = optionalText(artifactType);
  return { mediaType, digest, size, ...(type === null ? {} : { artifactType: type }) };
}

function parseAnnotations(value: unknown): Annotations {
  if (value === undefined || value === null) return {};
  const entries = Object.entries(asObject(value, "`annotations`"));
  for (const [name, text] of entries) {
    if (typeof text !== "string") throw malformed(`annotation \`${name}\` to be text`, text);
  }
  return Object.fromEntries(entries) as Annotations;
}

function asObject(value: unknown, field: string): { readonly [key: string]: unknown } {
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw malformed(`${field} to be an object`, value);
  }
  return value as { readonly [key: string]: unknown };
}

function optionalText(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

function malformed(expected: string, got: unknown): ContentFault {
  const shown = JSON.stringify(got)?.slice(0, 200) ?? "nothing";
  return new ContentFault(
    "malformed",
    null,
    `Expected ${expected} in an imageManifest, got ${shown}. Correct the document.`,
  );
}
