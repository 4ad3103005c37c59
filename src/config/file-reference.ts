/**
 * Values that name a file (`contents = "./values.tfvars"`): the text of the file takes their place.
 *
 * Only `./` is read. What would have to be fetched from elsewhere is refused, since an app must mean
 * the same wherever it is read.
 */
import { posix } from "node:path";
import type { Position } from "../model/fault.ts";
import type { AppFolder } from "./app-folder.ts";
import type { ProblemList } from "./problem-list.ts";

const remote = /^(?:https?:\/\/|git::|git@|file:\/\/|github\.com\/)/;

export interface ResolvedText {
  readonly text: string;
  /** The file that the text came from, or null when it stood in the value itself. */
  readonly file: string | null;
}

/** The text that a value stands for, or null (with an error noted) when it cannot be had. */
export async function resolveText(
  folder: AppFolder,
  value: string,
  base: string,
  position: Position,
  problems: ProblemList,
): Promise<ResolvedText | null> {
  if (remote.test(value)) {
    problems.error(
      position,
      "Expected a file of the app such as `./file`, got an address elsewhere, which this version does not fetch. Copy the file into the app.",
    );
    return null;
  }
  if (!value.startsWith("./") || value.startsWith("./nuon")) return { text: value, file: null };
  // The format falls back to the root where the base folder does not exist.
  const from = (await folder.kindOf(base)) === "directory" ? base : ".";
  const file = posix.join(from, value);
  const kind = await folder.kindOf(file);
  if (kind === "file") return { text: (await folder.readText(file)) ?? "", file };
  const got =
    kind === "outside" ? "a path that leaves the app's directory" : (kind ?? "nothing there");
  problems.error(position, `Expected a file at \`${file}\`, got ${got}.`);
  return null;
}
