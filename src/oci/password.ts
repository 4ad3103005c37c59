/** Passwords of registries: kept only as a salted scrypt hash, compared in constant time. */
import { scrypt, timingSafeEqual } from "node:crypto";
import { Fault } from "../model/fault.ts";

const cost = 16_384;
const blockSize = 8;
const parallel = 1;
const saltBytes = 16;
const hashBytes = 32;
const costMax = 1 << 17;

/** `scrypt$N$r$p$salt$hash`, for a configuration file; `random` gives the salt. */
export async function hashPassword(
  password: string,
  random: (size: number) => Uint8Array,
): Promise<string> {
  const salt = Buffer.from(random(saltBytes));
  const hash = await derive(password, salt, { N: cost, r: blockSize, p: parallel });
  const numbers = `${cost}$${blockSize}$${parallel}`;
  return `scrypt$${numbers}$${salt.toString("base64url")}$${hash.toString("base64url")}`;
}

/** True when the password is the one that was hashed. */
export async function verifyPassword(password: string, passwordHash: string): Promise<boolean> {
  const { salt, hash, ...options } = parsePasswordHash(passwordHash);
  return timingSafeEqual(await derive(password, salt, options), hash);
}

/** Takes a hash apart; a `Fault` when it is not one, so that a bad configuration fails at the start. */
export function parsePasswordHash(text: string) {
  const [scheme, N, r, p, salt, hash] = text.split("$");
  const parsed = {
    N: Number(N),
    r: Number(r),
    p: Number(p),
    salt: Buffer.from(salt ?? "", "base64url"),
    hash: Buffer.from(hash ?? "", "base64url"),
  };
  const sound =
    scheme === "scrypt" &&
    Number.isInteger(parsed.N) &&
    parsed.N > 1 &&
    parsed.N <= costMax &&
    parsed.r === blockSize &&
    parsed.p === parallel &&
    parsed.salt.length >= saltBytes &&
    parsed.hash.length === hashBytes;
  if (!sound) {
    throw new Fault(
      "invalid",
      "Expected a password hash as `hashPassword` makes it, got another text.",
    );
  }
  return parsed;
}

function derive(
  password: string,
  salt: Buffer,
  options: { N: number; r: number; p: number },
): Promise<Buffer> {
  const maxmem = 256 * options.N * options.r;
  return new Promise((resolve, reject) => {
    scrypt(password, salt, hashBytes, { ...options, maxmem }, (error, key) =>
      error ? reject(error) : resolve(key),
    );
  });
}
