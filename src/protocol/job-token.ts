/**
 * Job tokens: JWTs for one job, one epoch and one scope, minutes long, signed by a key of the server.
 * The vendor's registry verifies them on its own, with the public key alone.
 */
import type { KeyObject } from "node:crypto";
import { jwtVerify, SignJWT } from "jose";
import { z } from "zod";
import { describeError, Fault } from "../model/fault.ts";
import type { JobKey } from "./job-key.ts";
import type { FindKey, SigningKey } from "./signed-document.ts";

export const tokenAudience = "landfall-registry";

export const TokenScope = z.object({
  /** What it opens: the vendor's registry, or one uploaded source. */
  kind: z.enum(["repository", "source"]),
  name: z.string(),
  actions: z.array(z.enum(["pull", "push"])),
});
export type TokenScope = z.output<typeof TokenScope>;

const Claims = z.object({ sub: z.string(), jti: z.string(), access: z.array(TokenScope) });
export type JobTokenClaims = z.output<typeof Claims>;

/** Signs a token for one try of a job. */
export function signJobToken(
  key: SigningKey,
  options: {
    job: JobKey;
    tokenId: string;
    access: readonly TokenScope[];
    now: Date;
    minutes: number;
  },
): Promise<string> {
  const { job, tokenId, access, now, minutes } = options;
  const issuedAt = Math.floor(now.getTime() / 1000);
  return new SignJWT({ access })
    .setProtectedHeader({ alg: "EdDSA", typ: "JWT", kid: key.keyId })
    .setSubject(`${job.jobId}.${job.epoch.generation}.${job.epoch.n}`)
    .setAudience(tokenAudience)
    .setJti(tokenId)
    .setIssuedAt(issuedAt)
    .setNotBefore(issuedAt - 60)
    .setExpirationTime(issuedAt + minutes * 60)
    .sign(key.privateKey);
}

/** The claims of a token that verifies and has not expired; otherwise a `Fault`. */
export async function verifyJobToken(
  token: string,
  findKey: FindKey,
  now: Date,
): Promise<JobTokenClaims> {
  try {
    const { payload } = await jwtVerify(token, (header) => requireKey(findKey, header.kid ?? ""), {
      audience: tokenAudience,
      algorithms: ["EdDSA"],
      currentDate: now,
    });
    return Claims.parse(payload);
  } catch (error) {
    throw new Fault(
      "unauthorized",
      `Expected a valid job token, but it was refused: ${describeError(error)}.`,
      { cause: error },
    );
  }
}

function requireKey(findKey: FindKey, keyId: string): KeyObject {
  const key = findKey(keyId);
  if (!key) throw new Error(`no key ${keyId}`);
  return key;
}
