/**
 * Who may do what in a registry: two ways to answer, both closed by default.
 *
 * `bearer` takes tokens that name repositories and actions (the vendor's registry). `basic` takes
 * one username and password (an install's own registry, which knows nothing of the server).
 * Neither ever puts a credential into an answer or a log.
 */
import { createHmac, timingSafeEqual } from "node:crypto";
import { isFault } from "../model/fault.ts";
import { verifyPassword } from "./password.ts";
import type { Action } from "./registry-route.ts";

export interface AuthorizeRequest {
  readonly authorization?: string;
  /** Null for `/v2/` itself, which tells whether credentials are good at all. */
  readonly repository: string | null;
  readonly action: Action;
}

export interface Refusal {
  readonly status: 401 | 403 | 429;
  readonly message: string;
  /** The WWW-Authenticate header of a 401. */
  readonly challenge?: string;
}

/** Whom a request comes from, where the credential tells: the try of a job that holds the token. */
export interface Caller {
  readonly subject: string;
}

/** A refusal, or null (with a caller where one is known) when the request may go on. */
export type Authorize = (request: AuthorizeRequest) => Promise<Refusal | Caller | null>;

/** True for what keeps a request out. */
export function isRefusal(answer: Refusal | Caller | null): answer is Refusal {
  return answer !== null && "status" in answer;
}

export interface Access {
  readonly kind: string;
  readonly name: string;
  readonly actions: readonly string[];
}

/** Throws when the token is not good. */
export type VerifyToken = (
  token: string,
) => Promise<{ readonly access: readonly Access[]; readonly sub?: string }>;

const tokenLengthMax = 8192;
const verificationsMax = 16;

/** Lets in whoever has a token that names the repository and the action. */
export function authorizeBearer(verifyToken: VerifyToken): Authorize {
  return async ({ authorization, repository, action }) => {
    const scope = repository === null ? "" : `,scope="repository:${repository}:${action}"`;
    const challenge = `Bearer realm="landfall",service="landfall-registry"${scope}`;
    const token = credentialsOf(authorization, "bearer");
    if (token === null || token.length > tokenLengthMax) {
      return { status: 401, message: "Expected a bearer token.", challenge };
    }
    const claims = await verifyToken(token).catch((error: unknown) => {
      if (isFault(error)) return null;
      throw error;
    });
    if (!claims) {
      return {
        status: 401,
        message: "Expected a bearer token that is valid and has not expired.",
        challenge: `${challenge},error="invalid_token"`,
      };
    }
    const { access, sub } = claims;
    if (repository === null || access.some((entry) => allows(entry, repository, action)))
      return sub === undefined ? null : { subject: sub };
    return { status: 403, message: `The token does not allow \`${action}\` in ${repository}.` };
  };
}

/** Lets in whoever knows the one username and password. */
export function authorizeBasic(
  credentials: { readonly username: string; readonly passwordHash: string },
  random: (size: number) => Uint8Array,
): Authorize {
  // scrypt is slow on purpose. A header that was right once is remembered as a keyed hash.
  const key = random(32);
  const digest = (text: string) => createHmac("sha256", key).update(text).digest();
  let known: Buffer | null = null;
  let verifying = 0;
  const refusal: Refusal = {
    status: 401,
    message: "Expected the registry's username and password.",
    challenge: 'Basic realm="landfall",charset="UTF-8"',
  };
  return async ({ authorization }) => {
    const encoded = credentialsOf(authorization, "basic");
    if (encoded === null || encoded.length > tokenLengthMax) return refusal;
    const seen = digest(encoded);
    if (known && timingSafeEqual(known, seen)) return null;
    if (verifying >= verificationsMax) {
      return { status: 429, message: "Too many passwords are being checked. Try again." };
    }
    verifying++;
    try {
      if (!(await verifyBasic(encoded, credentials))) return refusal;
      known = seen;
      return null;
    } finally {
      verifying--;
    }
  };
}

async function verifyBasic(
  encoded: string,
  credentials: { readonly username: string; readonly passwordHash: string },
): Promise<boolean> {
  const text = Buffer.from(encoded, "base64").toString("utf8");
  const colon = text.indexOf(":");
  // The password is checked for a wrong username too, so that both take as long.
  const passwordMatches = await verifyPassword(text.slice(colon + 1), credentials.passwordHash);
  return colon >= 0 && text.slice(0, colon) === credentials.username && passwordMatches;
}

function allows(entry: Access, repository: string, action: Action): boolean {
  return entry.kind === "repository" && entry.name === repository && entry.actions.includes(action);
}

function credentialsOf(authorization: string | undefined, scheme: string): string | null {
  const [given, value, ...rest] = authorization?.trim().split(/ +/) ?? [];
  return given?.toLowerCase() === scheme && value && rest.length === 0 ? value : null;
}
