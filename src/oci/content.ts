/**
 * Content: bytes named by their digest, and the two contracts every place that keeps them follows.
 *
 * A `ContentSource` can only be read. A `ContentTarget` can be written too, and nothing in it ever
 * changes: what is pushed is whole, matches its digest, and stays. The type says which of the two a
 * function may do, so a sync job cannot write to the vendor's registry by mistake.
 */
import type { Digest } from "../model/json.ts";

/** One piece of content as an imageManifest names it. */
export interface Descriptor {
  readonly mediaType: string;
  readonly digest: Digest;
  readonly size: number;
  readonly artifactType?: string;
  readonly annotations?: Annotations;
}

export type Annotations = { readonly [name: string]: string };

/** Bytes in order, read once. */
export type ContentStream = AsyncIterable<Uint8Array>;

/** Starts reading from the first byte; called again when a push is tried again. */
export type OpenContent = () => Promise<ContentStream>;

export interface ContentSource {
  /** How errors name this place; holds no secret. */
  readonly name: string;

  /** The descriptor of an imageManifest, or null when this place does not have it. */
  stat(digest: Digest): Promise<Descriptor | null>;

  /**
   * The bytes of an imageManifest or blob. The last of them are given out only when all of them
   * match size and digest; otherwise reading throws a `ContentFault`.
   */
  open(content: Descriptor): Promise<ContentStream>;

  /** imageManifests whose `subject` is this digest; empty where the place cannot tell. */
  referrers(digest: Digest): Promise<readonly Descriptor[]>;
}

export interface ContentTarget extends ContentSource {
  /** True when this content is here, whole. */
  has(content: Descriptor): Promise<boolean>;

  /**
   * Keeps the bytes, durably. They become visible all at once, and only when they match size and
   * digest. An imageManifest is refused while something that it names is missing. Pushing what is
   * there already changes nothing.
   */
  push(content: Descriptor, open: OpenContent): Promise<void>;
}
