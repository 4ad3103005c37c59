/** Signatures: what is changed, of another kind, or by another key is refused. */
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { test } from "node:test";
import { z } from "zod";
import { digestOfJson } from "../model/json.ts";
import { signJobToken, verifyJobToken } from "./job-token.ts";
import {
  decodePrivateKey,
  decodePublicKey,
  encodePrivateKey,
  encodePublicKey,
  keyIdOf,
  signDocument,
  verifyDocument,
} from "./signed-document.ts";

const { publicKey, privateKey } = generateKeyPairSync("ed25519");
const key = { keyId: keyIdOf(publicKey), privateKey };
const findKey = (id: string) => (id === key.keyId ? publicKey : null);
const Payload = z.object({ a: z.number() });

test("a signed document verifies, and its digest is that of its payload", async () => {
  const document = await signDocument("landfall-manifest", { a: 1 }, key);

  const { payload, digest } = await verifyDocument("landfall-manifest", Payload, document, findKey);

  assert.deepEqual(payload, { a: 1 });
  assert.equal(digest, digestOfJson({ a: 1 }));
});

test("a document of another kind does not pass", async () => {
  const grant = await signDocument("landfall-grant", { a: 1 }, key);

  await assert.rejects(verifyDocument("landfall-manifest", Payload, grant, findKey), {
    code: "forbidden",
    message: /it is a landfall-grant/,
  });
});

test("a changed payload, a changed signature and an unknown key do not pass", async () => {
  const document = await signDocument("landfall-manifest", { a: 1 }, key);
  const [header, , signature] = document.split(".");
  const other = Buffer.from('{"a":2}').toString("base64url");
  const forgeries = [
    `${header}.${other}.${signature}`,
    `${document.slice(0, -4)}AAAA`,
    await signDocument("landfall-manifest", { a: 1 }, { ...key, keyId: "unknown" }),
    await signDocument(
      "landfall-manifest",
      { a: 1 },
      { ...key, privateKey: generateKeyPairSync("ed25519").privateKey },
    ),
    "not a document",
  ];

  for (const forgery of forgeries) {
    await assert.rejects(verifyDocument("landfall-manifest", Payload, forgery, findKey), {
      code: "forbidden",
    });
  }
});

test("keys survive their text forms", () => {
  assert.equal(keyIdOf(decodePublicKey(encodePublicKey(publicKey))), key.keyId);
  assert(decodePrivateKey(encodePrivateKey(privateKey)).equals(privateKey));
  assert.throws(() => decodePublicKey("short"), { code: "invalid" });
});

test("a job token is for one job, one scope and minutes", async () => {
  const now = new Date("2030-01-01T00:00:00Z");
  const token = await signJobToken(key, {
    job: { jobId: "job_x" as never, epoch: { generation: 1, n: 2 } },
    tokenId: "tok_1",
    access: [{ kind: "repository", name: "app/web", actions: ["pull"] }],
    now,
    minutes: 10,
  });

  const claims = await verifyJobToken(token, findKey, new Date(now.getTime() + 9 * 60_000));

  assert.equal(claims.sub, "job_x.1.2");
  assert.deepEqual(claims.access, [{ kind: "repository", name: "app/web", actions: ["pull"] }]);
  await assert.rejects(verifyJobToken(token, findKey, new Date(now.getTime() + 11 * 60_000)), {
    code: "unauthorized",
  });
});
