/**
 * Copies a whole graph of content between two places: an index, its imageManifests, their configs
 * and layers, and whatever refers to any of them.
 *
 * Invariant: children before parents. An imageManifest is pushed only when all it names is in the
 * target, so an imageManifest that is there already stands for everything below it. Memory is
 * bounded: imageManifests one after another, blobs as streams, a few at a time.
 */
import { describeError, Fault, isFault } from "../model/fault.ts";
import type { Digest } from "../model/json.ts";
import type { ContentSource, ContentStream, ContentTarget, Descriptor } from "./content.ts";
import { contentOf, readContent } from "./content-stream.ts";
import { missing } from "./folder-content.ts";
import {
  imageManifestBytesMax,
  isImageManifestType,
  parseImageManifest,
} from "./image-manifest.ts";

export interface CopyProgress {
  readonly bytesCopied: number;
  /** What is known to be needed so far; grows as imageManifests are read. */
  readonly bytesTotal: number;
}

export interface CopyOptions {
  /** Blobs under way at once. */
  readonly blobsAtOnce?: number;
  readonly onProgress?: (progress: CopyProgress) => void;
  readonly signal?: AbortSignal;
  /** False leaves out what refers to the graph (signatures and the like). */
  readonly referrers?: boolean;
}

export interface CopyResult {
  readonly copied: readonly {
    readonly digest: Digest;
    readonly bytes: number;
    readonly mediaType: string;
  }[];
  readonly bytesCopied: number;
  /** How many pieces of content were in the target already. */
  readonly skipped: number;
}

const blobsAtOnceDefault = 4;
const depthMax = 8;
const contentsMax = 100_000;

interface Copying {
  readonly source: ContentSource;
  readonly target: ContentTarget;
  readonly options: CopyOptions;
  readonly seen: Set<Digest>;
  readonly copied: { digest: Digest; bytes: number; mediaType: string }[];
  bytesCopied: number;
  bytesTotal: number;
  skipped: number;
}

/** Copies what `rootDigest` names, skipping what the target has. Safe to run again after a failure. */
export async function copy(
  source: ContentSource,
  target: ContentTarget,
  rootDigest: Digest,
  options: CopyOptions = {},
): Promise<CopyResult> {
  const copying: Copying = {
    source,
    target,
    options,
    seen: new Set(),
    copied: [],
    bytesCopied: 0,
    bytesTotal: 0,
    skipped: 0,
  };
  const root = await atSide("source", source, rootDigest, () => source.stat(rootDigest));
  if (!root)
    throw sideFault("source", source, rootDigest, missing({ digest: rootDigest }, source.name));
  await copyImageManifest(copying, root, 0);
  const { copied, bytesCopied, skipped } = copying;
  return { copied, bytesCopied, skipped };
}

async function copyImageManifest(
  copying: Copying,
  content: Descriptor,
  depth: number,
): Promise<void> {
  const { source, target, options } = copying;
  options.signal?.throwIfAborted();
  if (depth > depthMax) {
    throw new Fault("too_large", `Expected a graph of at most ${depthMax} levels below its root.`);
  }
  if (!visit(copying, content.digest)) return;
  if (await atSide("target", target, content.digest, () => target.has(content))) {
    copying.skipped++;
  } else {
    const bytes = await atSide("source", source, content.digest, () =>
      readContent(source, content, imageManifestBytesMax),
    );
    const parsed = await atSide("source", source, content.digest, async () =>
      parseImageManifest(bytes, content.mediaType),
    );
    for (const child of parsed.imageManifests) await copyImageManifest(copying, child, depth + 1);
    await copyBlobs(copying, parsed.blobs);
    copying.bytesTotal += content.size;
    await transfer(copying, content, contentOf(bytes));
  }
  if (options.referrers === false) return;
  const referrers = await atSide("source", source, content.digest, () =>
    source.referrers(content.digest),
  );
  for (const referrer of referrers) {
    if (isImageManifestType(referrer.mediaType)) {
      await copyImageManifest(copying, referrer, depth + 1);
    }
  }
}

/** Several at a time; the first failure stops the others at their next piece. */
async function copyBlobs(copying: Copying, blobs: readonly Descriptor[]): Promise<void> {
  const waiting = blobs.filter((blob) => visit(copying, blob.digest)).values();
  const stop = new AbortController();
  let failure: { readonly error: unknown } | null = null;
  const copyNext = async () => {
    for (const blob of waiting) {
      if (stop.signal.aborted) return;
      try {
        await copyBlob(copying, blob, stop.signal);
      } catch (error) {
        failure ??= { error };
        stop.abort();
      }
    }
  };
  const atOnce = Math.min(copying.options.blobsAtOnce ?? blobsAtOnceDefault, blobs.length);
  await Promise.all(Array.from({ length: atOnce }, copyNext));
  const failed = failure as { readonly error: unknown } | null;
  if (failed) throw failed.error;
}

async function copyBlob(copying: Copying, blob: Descriptor, stop: AbortSignal): Promise<void> {
  const { source, target } = copying;
  if (await atSide("target", target, blob.digest, () => target.has(blob))) {
    copying.skipped++;
    return;
  }
  copying.bytesTotal += blob.size;
  await transfer(copying, blob, () => source.open(blob), stop);
}

async function transfer(
  copying: Copying,
  content: Descriptor,
  open: () => Promise<ContentStream>,
  stop?: AbortSignal,
): Promise<void> {
  const { source, target, options } = copying;
  let sourceError: unknown = null;
  let counted = 0;
  async function* watch(stream: ContentStream) {
    try {
      for await (const piece of stream) {
        stop?.throwIfAborted();
        options.signal?.throwIfAborted();
        counted += piece.length;
        copying.bytesCopied += piece.length;
        options.onProgress?.({ bytesCopied: copying.bytesCopied, bytesTotal: copying.bytesTotal });
        yield piece;
      }
    } catch (error) {
      sourceError = error;
      throw error;
    }
  }
  try {
    await target.push(content, async () => {
      // A push that is tried again starts again, and so does the count.
      copying.bytesCopied -= counted;
      counted = 0;
      return watch(await open());
    });
  } catch (error) {
    copying.bytesCopied -= counted;
    options.signal?.throwIfAborted();
    if (stop?.aborted) throw error;
    if (sourceError !== null) throw sideFault("source", source, content.digest, sourceError);
    throw sideFault("target", target, content.digest, error);
  }
  copying.copied.push({
    digest: content.digest,
    bytes: content.size,
    mediaType: content.mediaType,
  });
}

function visit({ seen }: Copying, digest: Digest): boolean {
  if (seen.has(digest)) return false;
  if (seen.size >= contentsMax) {
    throw new Fault("too_large", `Expected a graph of at most ${contentsMax} pieces of content.`);
  }
  seen.add(digest);
  return true;
}

async function atSide<T>(
  side: "source" | "target",
  place: ContentSource,
  digest: Digest,
  operation: () => Promise<T>,
): Promise<T> {
  try {
    return await operation();
  } catch (error) {
    throw sideFault(side, place, digest, error);
  }
}

/** Says which side failed at what; the cause says the rest. */
function sideFault(
  side: "source" | "target",
  place: ContentSource,
  digest: Digest,
  error: unknown,
): Fault {
  const code = isFault(error) ? error.code : "unavailable";
  return new Fault(
    code,
    `Copying ${digest} failed at the ${side} (${place.name}): ${describeError(error)}`,
    { cause: error },
  );
}
