/**
 * Signed documents: a JWS in compact form (EdDSA over Ed25519) whose `typ` says what it is, so that a
 * grant can never pass for a manifest. The digest of a document is the digest of its payload's bytes.
 */
import { createPrivateKey, createPublicKey, type KeyObject } from "node:crypto";
import { CompactSign, compactVerify, decodeProtectedHeader } from "jose";
import type { z } from "zod";
import { describeError, Fault } from "../model/fault.ts";
import { canonicalJson, type Digest, digestOf } from "../model/json.ts";

export type DocumentKind =
  | "landfall-keyset"
  | "landfall-manifest"
  | "landfall-grant"
  | "landfall-frame";

export interface SigningKey {
  readonly keyId: string;
  readonly privateKey: KeyObject;
}

/** Finds a public key by its id; null when it is not (or no longer) trusted. */
export type FindKey = (keyId: string) => KeyObject | null;

/** Signs the canonical JSON of a payload. */
export function signDocument(
  kind: DocumentKind,
  payload: object,
  key: SigningKey,
): Promise<string> {
  return new CompactSign(new TextEncoder().encode(canonicalJson(payload)))
    .setProtectedHeader({ alg: "EdDSA", typ: kind, kid: key.keyId })
    .sign(key.privateKey);
}

/** Verifies signature, kind and shape; throws a `Fault` that says which of them is wrong. */
export async function verifyDocument<Schema extends z.ZodType>(
  kind: DocumentKind,
  schema: Schema,
  document: string,
  findKey: FindKey,
): Promise<{ payload: z.output<Schema>; digest: Digest }> {
  const bytes = await verifySignature(kind, document, findKey);
  const parsed = schema.safeParse(JSON.parse(new TextDecoder().decode(bytes)));
  if (!parsed.success) {
    throw new Fault(
      "invalid",
      `Expected a ${kind} of a known version, got ${parsed.error.message}.`,
    );
  }
  return { payload: parsed.data, digest: digestOf(bytes) };
}

async function verifySignature(
  kind: DocumentKind,
  document: string,
  findKey: FindKey,
): Promise<Uint8Array> {
  try {
    const header = decodeProtectedHeader(document);
    if (header.typ !== kind) throw new Error(`it is a ${header.typ ?? "document without a type"}`);
    const key = findKey(header.kid ?? "");
    if (!key) throw new Error(`its key ${header.kid ?? "(none)"} is not one of the server's`);
    return (await compactVerify(document, key, { algorithms: ["EdDSA"] })).payload;
  } catch (error) {
    throw new Fault(
      "forbidden",
      `Expected a ${kind} that the server signed, but it does not verify: ${describeError(error)}. Nothing was done with it.`,
      { cause: error },
    );
  }
}

/** A key's id: the digest of its raw public bytes, shortened. */
export function keyIdOf(publicKey: KeyObject): string {
  return digestOf(Buffer.from(encodePublicKey(publicKey), "base64url")).slice(7, 23);
}

/** The raw 32 bytes of an Ed25519 public key, base64url. */
export function encodePublicKey(publicKey: KeyObject): string {
  const { x } = publicKey.export({ format: "jwk" });
  if (!x) throw new Fault("invalid", "Expected an Ed25519 public key.");
  return x;
}

/** The reverse of `encodePublicKey`. */
export function decodePublicKey(text: string): KeyObject {
  try {
    return createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: text }, format: "jwk" });
  } catch (error) {
    throw new Fault("invalid", "Expected an Ed25519 public key in base64url.", { cause: error });
  }
}

/** A private key as PEM text, and back; the text never goes anywhere but into a 0600 file. */
export function encodePrivateKey(privateKey: KeyObject): string {
  return privateKey.export({ format: "pem", type: "pkcs8" }).toString();
}

/** The reverse of `encodePrivateKey`. */
export function decodePrivateKey(pem: string): KeyObject {
  return createPrivateKey(pem);
}
