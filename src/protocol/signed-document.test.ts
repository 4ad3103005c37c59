/** Signatures: what is changed, of another kind, or by another key is refused. */
import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { test } from "node:test";
import { CompactSign, compactVerify } from "jose";
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

test("a signed document is a JWS like any other: jose makes the same bytes, and takes ours", async () => {
  const document = await signDocument(
    "landfall-grant",
    { b: [1, { d: "ü", c: null }], a: "x" },
    key,
  );
  const header = { alg: "EdDSA", typ: "landfall-grant", kid: key.keyId };
  const content = new TextEncoder().encode('{"a":"x","b":[1,{"c":null,"d":"ü"}]}');

  const theirs = await new CompactSign(content).setProtectedHeader(header).sign(privateKey);
  const verified = await compactVerify(document, publicKey, { algorithms: ["EdDSA"] });

  assert.equal(document, theirs);
  assert.deepEqual(verified.protectedHeader, header);
  assert.deepEqual(new Uint8Array(verified.payload), content);
});

test("a header with another algorithm, a demand or a gap does not pass, however well it is signed", async () => {
  const content = Buffer.from('{"a":1}').toString("base64url");
  const ours = { alg: "EdDSA", typ: "landfall-manifest", kid: key.keyId };
  const headers = [
    { ...ours, alg: "none" },
    { ...ours, alg: "HS256" },
    { ...ours, b64: false, crit: ["b64"] },
    { alg: ours.alg, kid: ours.kid },
    { alg: ours.alg, typ: ours.typ },
  ];
  const documents = headers.map((header) => {
    const signed = `${Buffer.from(JSON.stringify(header)).toString("base64url")}.${content}`;
    return `${signed}.${sign(null, Buffer.from(signed), privateKey).toString("base64url")}`;
  });
  const genuine = await signDocument("landfall-manifest", { a: 1 }, key);

  for (const document of [
    ...documents,
    `${genuine}=`,
    `${genuine}A`,
    `${genuine}\n`,
    ` ${genuine}`,
  ]) {
    await assert.rejects(verifyDocument("landfall-manifest", Payload, document, findKey), {
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
