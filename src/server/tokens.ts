/**
 * Tokens of people and programs, and the sessions of browsers: random secrets of which the database
 * holds only a hash, each with an end.
 *
 * Invariant: a secret is shown once, to whoever made it, and is in no table, log or event.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { createId, type TokenId } from "../model/ids.ts";
import type { ServerContext } from "./context.ts";

export type TokenKind = "api" | "session";

export interface Token {
  readonly id: TokenId;
  readonly kind: TokenKind;
  readonly name: string;
  readonly expiresAt: Date;
}

/** What acts in the name of a token, as events tell it. */
export type Actor = `token:${TokenId}`;

export interface TokenFinder {
  /** The token with this secret, or null when it is unknown, revoked or expired. */
  find(kind: TokenKind, secret: string): Promise<Token | null>;
  /** Forgets what was found, so that a revoked token ends at once in this process. */
  forget(id: TokenId): void;
}

const prefixes = { api: "lft", session: "lfs" } as const satisfies Record<TokenKind, string>;
const secretBytes = 32;
const secretForm = /^(lft|lfs)_[A-Za-z0-9_-]{43}$/;
const dayMs = 86_400_000;
export const tokenDaysMax = 3660;

/** A revoked token works for this long at most in other servers on the same database. */
const cacheMs = 3000;
const cacheEntriesMax = 1000;

/** Makes a token; the secret is in the answer and nowhere else. */
export async function createToken(
  context: ServerContext,
  actor: string,
  { name, kind, days }: { name: string; kind: TokenKind; days: number },
): Promise<{ id: TokenId; secret: string; expiresAt: Date }> {
  if (!(days > 0 && days <= tokenDaysMax)) {
    throw new Error(`Expected between 0 and ${tokenDaysMax} days, got ${days}.`);
  }
  const id = createId("tok", context.now(), context.random);
  const random = Buffer.from(context.random(secretBytes)).toString("base64url");
  const secret = `${prefixes[kind]}_${random}`;
  const expiresAt = new Date(context.now().getTime() + days * dayMs);
  await context.database.transaction(actor, (sql) =>
    sql.query("insert into tokens (id, hash, kind, name, expires_at) values ($1, $2, $3, $4, $5)", [
      id,
      hashSecret(secret),
      kind,
      name,
      expiresAt,
    ]),
  );
  return { id, secret, expiresAt };
}

/** A session for the browser of whoever holds `token`; it never outlives the token. */
export function createSession(
  context: ServerContext,
  token: Token,
  days: number,
): Promise<{ id: TokenId; secret: string; expiresAt: Date }> {
  const left = (token.expiresAt.getTime() - context.now().getTime()) / dayMs;
  return createToken(context, `token:${token.id}`, {
    name: sessionName(token.id),
    kind: "session",
    days: Math.min(days, left),
  });
}

/** The token with this secret, or null when it is unknown, revoked or expired. */
export async function findToken(
  context: ServerContext,
  kind: TokenKind,
  secret: string,
): Promise<Token | null> {
  if (!secretForm.test(secret) || !secret.startsWith(prefixes[kind])) return null;
  const hash = hashSecret(secret);
  const [row] = await context.database.query<Omit<Token, "expiresAt"> & TokenRow>(
    "select id, hash, kind, name, expires_at from tokens where hash = $1 and kind = $2 and revoked_at is null",
    [hash, kind],
  );
  if (!row || !timingSafeEqual(Buffer.from(row.hash), Buffer.from(hash))) return null;
  const token = { id: row.id, kind: row.kind, name: row.name, expiresAt: row.expires_at };
  return isAlive(token, context.now()) ? token : null;
}

/** Ends a token, and the sessions that were opened with it. */
export async function revokeToken(
  context: ServerContext,
  actor: string,
  id: TokenId,
): Promise<void> {
  await context.database.transaction(actor, (sql) =>
    sql.query(
      `update tokens set revoked_at = $2
       where (id = $1 or (kind = 'session' and name = $3)) and revoked_at is null`,
      [id, context.now(), sessionName(id)],
    ),
  );
}

/** `findToken` with a memory of a few seconds, since a browser asks often. */
export function createTokenFinder(context: ServerContext): TokenFinder {
  const cache = new Map<string, { token: Token; until: number }>();
  return {
    async find(kind, secret) {
      const now = context.now();
      const key = `${kind} ${hashSecret(secret)}`;
      const known = cache.get(key);
      if (known && known.until > now.getTime())
        return isAlive(known.token, now) ? known.token : null;
      cache.delete(key);
      const token = await findToken(context, kind, secret);
      if (token) {
        if (cache.size >= cacheEntriesMax) cache.clear();
        cache.set(key, { token, until: now.getTime() + cacheMs });
      }
      return token;
    },
    forget(id) {
      for (const [key, { token }] of cache) if (token.id === id) cache.delete(key);
    },
  };
}

interface TokenRow {
  readonly hash: string;
  readonly expires_at: Date;
}

function isAlive(token: Token, now: Date): boolean {
  return token.expiresAt > now;
}

function hashSecret(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}

function sessionName(id: TokenId): string {
  return `session of ${id}`;
}
