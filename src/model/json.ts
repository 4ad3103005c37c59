/**
 * JSON values and their canonical text: the same value gives the same bytes everywhere, so that a
 * digest of it names it.
 */
import { createHash } from "node:crypto";

export type Json =
  | string
  | number
  | boolean
  | null
  | readonly Json[]
  | { readonly [key: string]: Json };
export type JsonObject = { readonly [key: string]: Json };

/** A content digest as OCI writes it, `sha256:` and 64 hex digits. */
export type Digest = `sha256:${string}`;

const digestForm = /^sha256:[0-9a-f]{64}$/;

/** True for text of the form `sha256:…`. */
export function isDigest(text: string): text is Digest {
  return digestForm.test(text);
}

/** Keys sorted, no white space, `undefined` members left out. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    inner !== null && typeof inner === "object" && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : inner,
  );
}

/** The digest of bytes or of text in UTF-8. */
export function digestOf(content: string | Uint8Array): Digest {
  return `sha256:${createHash("sha256").update(content).digest("hex")}`;
}

/** The digest of a value's canonical JSON. */
export function digestOfJson(value: unknown): Digest {
  return digestOf(canonicalJson(value));
}
