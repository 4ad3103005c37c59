/**
 * Encryption and keyed hashes of one store, from one key file.
 *
 * A sealed value is bound to its key and version, so that what lies in the database cannot be swapped
 * or rolled back to an older value unnoticed. Two keys are derived, so that a hash never helps against
 * the encryption.
 */
import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from "node:crypto";
import { Fault } from "../model/fault.ts";

export const masterKeyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;

export interface Sealing {
  /** Encrypts a value for its place. */
  seal(place: string, value: Uint8Array): Uint8Array;
  /** The reverse; refuses bytes that were changed, or that belong elsewhere. */
  unseal(place: string, sealed: Uint8Array): Uint8Array;
  hash(value: string | Uint8Array): string;
}

/** Derives both keys from the store's own. */
export function createSealing(masterKey: Uint8Array): Sealing {
  if (masterKey.byteLength !== masterKeyBytes) {
    throw new Fault(
      "invalid",
      `Expected a store key of ${masterKeyBytes} bytes, got ${masterKey.byteLength}.`,
    );
  }
  const encryptionKey = derive(masterKey, "landfall store encryption");
  const hashKey = derive(masterKey, "landfall store hash");
  return {
    seal(place, value) {
      const nonce = randomBytes(nonceBytes);
      const cipher = createCipheriv("aes-256-gcm", encryptionKey, nonce);
      cipher.setAAD(Buffer.from(place));
      const body = Buffer.concat([cipher.update(value), cipher.final()]);
      return Buffer.concat([nonce, cipher.getAuthTag(), body]);
    },
    unseal(place, sealed) {
      try {
        const decipher = createDecipheriv(
          "aes-256-gcm",
          encryptionKey,
          sealed.subarray(0, nonceBytes),
        );
        decipher.setAAD(Buffer.from(place));
        decipher.setAuthTag(sealed.subarray(nonceBytes, nonceBytes + tagBytes));
        const body = sealed.subarray(nonceBytes + tagBytes);
        return Buffer.concat([decipher.update(body), decipher.final()]);
      } catch (error) {
        throw new Fault(
          "invalid",
          `Expected a value that this store's key opens at \`${place}\`, but it does not. Put \`store.key\` and \`store.db\` of the same time together.`,
          { cause: error },
        );
      }
    },
    hash: (value) => `hmac:${createHmac("sha256", hashKey).update(value).digest("hex")}`,
  };
}

function derive(masterKey: Uint8Array, purpose: string): Buffer {
  return Buffer.from(hkdfSync("sha256", masterKey, new Uint8Array(0), purpose, masterKeyBytes));
}
