/**
 * Ids are branded and prefixed, so that one kind is never taken for another, in code or by a person.
 * They begin with the time, so that they sort by age.
 */

declare const brand: unique symbol;
type Id<Prefix extends string> = `${Prefix}_${string}` & { readonly [brand]: Prefix };

export type AppId = Id<"app">;
export type BuildId = Id<"bld">;
export type ReleaseId = Id<"rel">;
export type InstallId = Id<"ins">;
export type JobId = Id<"job">;
export type AgentId = Id<"agt">;
export type TokenId = Id<"tok">;

type Prefix = "app" | "bld" | "rel" | "ins" | "job" | "agt" | "tok";

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";
const timeLength = 10;
const randomLength = 14;

/** A new id; `random` gives bytes that nobody can guess. */
export function createId<P extends Prefix>(
  prefix: P,
  now: Date,
  random: (size: number) => Uint8Array,
): Id<P> {
  let time = now.getTime();
  let text = "";
  for (let index = 0; index < timeLength; index++) {
    text = alphabet.charAt(time % 32) + text;
    time = Math.floor(time / 32);
  }
  for (const byte of random(randomLength)) text += alphabet.charAt(byte % 32);
  return `${prefix}_${text}` as Id<P>;
}

/** True for an id of this kind. */
export function isId<P extends Prefix>(prefix: P, text: string): text is Id<P> {
  return new RegExp(`^${prefix}_[0-9a-hjkmnp-tv-z]{${timeLength + randomLength}}$`).test(text);
}
