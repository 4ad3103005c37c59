/**
 * Who this agent is: its id and key, and the server's root key that it pinned when it enrolled.
 *
 * Invariant: the private key is in a file that only this user may read, and nowhere else. The number
 * of the newest keyset seen never goes down, so an old (leaked) key cannot be brought back.
 */
import type { KeyObject } from "node:crypto";
import { join } from "node:path";
import { z } from "zod";
import { replaceFile } from "../files/replace-file.ts";
import { Fault } from "../model/fault.ts";
import { type Keyset, Keyset as KeysetSchema } from "../protocol/documents.ts";
import { AgentIdText } from "../protocol/json-schema.ts";
import {
  decodePrivateKey,
  decodePublicKey,
  type FindKey,
  keyIdOf,
  verifyDocument,
} from "../protocol/signed-document.ts";
import { readText } from "./foreign-file.ts";

const identityBytesMax = 64 * 1024;

export const Identity = z.object({
  version: z.literal(1),
  agentId: AgentIdText,
  /** PKCS #8, PEM. */
  privateKey: z.string(),
  rootPublicKey: z.string(),
  keysetNumber: z.int().min(1),
});
export type Identity = z.output<typeof Identity>;

/** The identity in the agent's folder, or null before it has enrolled. */
export async function readIdentity(directory: string): Promise<Identity | null> {
  const path = identityPath(directory);
  const text = await readText(path, identityBytesMax);
  if (text === null) return null;
  try {
    return Identity.parse(JSON.parse(text));
  } catch {
    // The file's text stays out of the message: it holds the private key.
    throw new Fault(
      "invalid",
      `Expected the agent's identity in ${path}, got a file that cannot be read as one. Restore it, or remove it and enrol again with a new code.`,
    );
  }
}

/** Keeps the identity, 0600, flushed before it returns. */
export function writeIdentity(directory: string, identity: Identity): Promise<void> {
  return replaceFile(identityPath(directory), `${JSON.stringify(identity, null, 2)}\n`);
}

/** The key that signs the challenge. */
export function privateKeyOf(identity: Identity): KeyObject {
  return decodePrivateKey(identity.privateKey);
}

/** Verifies a keyset against the pinned root; refuses one that is older than any seen. */
export async function verifyKeyset(
  document: string,
  pinned: { readonly rootPublicKey: string; readonly keysetNumber: number },
): Promise<Keyset> {
  const root = decodePublicKey(pinned.rootPublicKey);
  const rootKeyId = keyIdOf(root);
  const { payload } = await verifyDocument("landfall-keyset", KeysetSchema, document, (keyId) =>
    keyId === rootKeyId ? root : null,
  );
  if (payload.rootKeyId !== rootKeyId || payload.number < pinned.keysetNumber) {
    throw new Fault(
      "forbidden",
      `Expected keyset ${pinned.keysetNumber} or newer of root ${rootKeyId}, got keyset ${payload.number} of root ${payload.rootKeyId}. Check that the server was not replaced by an older copy.`,
    );
  }
  return payload;
}

/** Finds the keyset's keys by id. */
export function keyFinder(keyset: Pick<Keyset, "keys">): FindKey {
  const keys = new Map(
    Object.entries(keyset.keys).map(([keyId, text]) => [keyId, decodePublicKey(text)]),
  );
  return (keyId) => keys.get(keyId) ?? null;
}

/** Where it is kept, in the agent's folder. */
export function identityPath(directory: string): string {
  return join(directory, "identity.json");
}
