/**
 * The server's keys: a root key, which signs numbered keysets and nothing else, and a signing key for
 * documents, frames and job tokens. Private keys live in one 0600 file, never in the database.
 */
import { generateKeyPairSync } from "node:crypto";
import { mkdir, readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { z } from "zod";
import { replaceFile } from "../files/replace-file.ts";
import { Fault } from "../model/fault.ts";
import type { Keyset } from "../protocol/documents.ts";
import {
  decodePrivateKey,
  decodePublicKey,
  encodePrivateKey,
  encodePublicKey,
  keyIdOf,
  signDocument,
} from "../protocol/signed-document.ts";
import type { ServerKeys } from "./context.ts";
import type { Database } from "./database.ts";

const KeyFile = z.object({
  version: z.literal(1),
  rootPrivateKey: z.string(),
  rootPublicKey: z.string(),
  signingPrivateKey: z.string(),
  signingPublicKey: z.string(),
});
type KeyFile = z.output<typeof KeyFile>;

/** Reads the keys, makes them at the first start, and sees to it that the database has their keyset. */
export async function openKeys(
  database: Database,
  path: string,
  serverUrl: string,
): Promise<ServerKeys> {
  const [newest] = await database.query<{ number: number; document: string }>(
    "select number, document from keysets order by number desc limit 1",
  );
  const file = (await readKeyFile(path)) ?? (await createKeyFile(path, newest !== undefined));
  const rootKeyId = keyIdOf(decodePublicKey(file.rootPublicKey));
  const signingKeyId = keyIdOf(decodePublicKey(file.signingPublicKey));
  const publicKeys = { [signingKeyId]: file.signingPublicKey };
  // The address is part of the keyset, so a server that moved (another port) issues the next one.
  const isCurrent = newest && describes(newest.document, rootKeyId, publicKeys, serverUrl);
  const number = isCurrent ? newest.number : (newest?.number ?? 0) + 1;
  const keyset: Keyset = { version: 1, number, rootKeyId, keys: publicKeys, serverUrl };
  const document = isCurrent
    ? newest.document
    : await signDocument("landfall-keyset", keyset, {
        keyId: rootKeyId,
        privateKey: decodePrivateKey(file.rootPrivateKey),
      });
  if (!isCurrent) {
    await database.query("insert into keysets (number, document) values ($1, $2)", [
      number,
      document,
    ]);
  }
  return {
    rootKeyId,
    rootPublicKey: file.rootPublicKey,
    signing: { keyId: signingKeyId, privateKey: decodePrivateKey(file.signingPrivateKey) },
    keyset: document,
    publicKeys,
  };
}

async function readKeyFile(path: string): Promise<KeyFile | null> {
  const text = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
  return text === null ? null : KeyFile.parse(JSON.parse(text));
}

async function createKeyFile(path: string, hasKeyset: boolean): Promise<KeyFile> {
  if (hasKeyset) {
    throw new Fault(
      "unavailable",
      `Expected the server's keys in ${path}, but the file is not there, and agents have pinned them. ` +
        "Restore the file from a back-up.",
    );
  }
  const root = generateKeyPairSync("ed25519");
  const signing = generateKeyPairSync("ed25519");
  const file: KeyFile = {
    version: 1,
    rootPrivateKey: encodePrivateKey(root.privateKey),
    rootPublicKey: encodePublicKey(root.publicKey),
    signingPrivateKey: encodePrivateKey(signing.privateKey),
    signingPublicKey: encodePublicKey(signing.publicKey),
  };
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await replaceFile(path, JSON.stringify(file));
  return file;
}

function describes(
  document: string,
  rootKeyId: string,
  keys: Readonly<Record<string, string>>,
  serverUrl: string,
): boolean {
  const payload = JSON.parse(
    Buffer.from(document.split(".")[1] ?? "", "base64url").toString(),
  ) as Keyset;
  return (
    payload.rootKeyId === rootKeyId &&
    payload.serverUrl === serverUrl &&
    JSON.stringify(payload.keys) === JSON.stringify(keys)
  );
}
