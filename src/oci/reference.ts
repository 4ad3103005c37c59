/**
 * Names of repositories and tags, as the OCI distribution specification allows them. They become
 * paths of files, so nothing else gets past this door: no dots alone, no slashes in a tag.
 */
import { Fault } from "../model/fault.ts";

const nameForm =
  /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$/;
const tagForm = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const nameLengthMax = 255;

/** True for a repository's name, such as `guestbook/web`. */
export function isRepositoryName(text: string): boolean {
  return text.length <= nameLengthMax && nameForm.test(text);
}

/** True for a tag. */
export function isTag(text: string): boolean {
  return tagForm.test(text);
}

/** The name itself, or a `Fault` when it is not one. */
export function requireRepositoryName(text: string): string {
  if (isRepositoryName(text)) return text;
  throw new Fault(
    "invalid",
    `Expected a repository name such as \`guestbook/web\` (lower case, at most ${nameLengthMax} characters), got ${JSON.stringify(text.slice(0, nameLengthMax))}. Rename it.`,
  );
}
