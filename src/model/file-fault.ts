/**
 * What a person is told when a file or folder of theirs cannot be used.
 *
 * Invariant: only errors that the person can do something about become a `Fault`; any other is a bug
 * and stays what it was.
 */
import { Fault } from "./fault.ts";

const causes: ReadonlyMap<string, readonly [got: string, advice: string]> = new Map([
  ["ENOSPC", ["the disk is full", "Free some space, or choose another folder"]],
  ["EDQUOT", ["the disk quota is used up", "Free some space, or choose another folder"]],
  ["EROFS", ["the file system is read-only", "Choose a folder that can be written"]],
  ["EACCES", ["permission is denied", "Change its owner or mode, or choose another folder"]],
  [
    "EPERM",
    ["the operation is not permitted", "Change its owner or mode, or choose another folder"],
  ],
  ["ENOTDIR", ["a part of its path is a file", "Choose another folder"]],
  ["EEXIST", ["a file is in its place", "Choose another folder"]],
  ["ENAMETOOLONG", ["its path is too long", "Choose a folder with a shorter path"]],
  ["ELOOP", ["its path is a circle of links", "Choose another folder"]],
]);

/** The error as a refusal that says what to do; any other error unchanged. */
export function explainFileError(error: unknown, expected: string, advice?: string): unknown {
  const code = errorCode(error);
  const cause = code === null ? undefined : causes.get(code);
  if (cause === undefined) return error;
  const [got, usualAdvice] = cause;
  const message = `Expected ${expected}, but ${got} (${code}). ${advice ?? usualAdvice}.`;
  return new Fault("unavailable", message, { cause: error });
}

/** The system's code of an error, such as `ENOENT`, or null. */
export function errorCode(error: unknown): string | null {
  return error instanceof Error && "code" in error && typeof error.code === "string"
    ? error.code
    : null;
}
