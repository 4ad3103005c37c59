/**
 * An app's directory as the reader sees it: which entries there are, and their text.
 *
 * Nothing outside the directory is ever read: links that lead out of it are refused. Every read has a
 * size, and a folder cannot hold more files, or lie deeper, than the limits say.
 */
import { readdir, readFile, realpath, stat } from "node:fs/promises";
import { isAbsolute, join, posix, relative, sep } from "node:path";
import type { Position } from "../model/fault.ts";
import type { ProblemList } from "./problem-list.ts";

const fileBytesMax = 1_048_576;
const filesMax = 5000;
const depthMax = 16;

export interface AppFolder {
  /** The directory's real path. */
  readonly root: string;
  /** The text of a file, or null when it does not exist or holds nothing. Paths are relative, with `/`. */
  readText(path: string): Promise<string | null>;
  /** All `*.toml` below a folder, sorted; empty when there is no such folder. */
  listToml(folder: string): Promise<string[]>;
  /** What is at a path: null for nothing, `outside` for what lies beyond the root. */
  kindOf(path: string): Promise<"file" | "directory" | "other" | "outside" | null>;
}

/** Opens a directory, or gives null when it is none. */
export async function openAppFolder(
  directory: string,
  problems: ProblemList,
): Promise<AppFolder | null> {
  const root = await realpath(directory).catch(() => null);
  const info = root === null ? null : await stat(root);
  if (root === null || !info?.isDirectory()) {
    problems.error(
      null,
      `Expected an app's directory at \`${directory}\`, got none. Check the path.`,
    );
    return null;
  }
  return createAppFolder(root, problems);
}

function createAppFolder(root: string, problems: ProblemList): AppFolder {
  let filesSeen = 0;

  /** The real path of something inside the root, or why there is none. */
  async function locate(path: string): Promise<string | "outside" | null> {
    if (isAbsolute(path) || !isInside(root, join(root, path))) return "outside";
    const real = await realpath(join(root, path)).catch(() => null);
    if (real === null) return null;
    return isInside(root, real) ? real : "outside";
  }

  async function kindOf(path: string) {
    const real = await locate(path);
    if (real === null || real === "outside") return real;
    const info = await stat(real);
    return info.isFile() ? "file" : info.isDirectory() ? "directory" : "other";
  }

  async function readText(path: string): Promise<string | null> {
    const real = await locate(path);
    if (real === null) return null;
    if (real === "outside") {
      problems.error(
        start(path),
        "Expected a file in the app's directory, got a link that leaves it.",
      );
      return null;
    }
    const info = await stat(real);
    if (!info.isFile() || info.size === 0) return null;
    if (info.size > fileBytesMax) {
      problems.error(start(path), `Expected at most ${fileBytesMax} bytes, got ${info.size}.`);
      return null;
    }
    try {
      return new TextDecoder("utf-8", { fatal: true }).decode(await readFile(real));
    } catch (error) {
      const reason = error instanceof TypeError ? "bytes that are not UTF-8 text" : "an error";
      problems.error(start(path), `Expected a file that can be read as text, got ${reason}.`);
      return null;
    }
  }

  async function listToml(folder: string): Promise<string[]> {
    const found: string[] = [];
    await walk(folder, 0, new Set(), found);
    return found;
  }

  async function walk(folder: string, depth: number, seen: Set<string>, found: string[]) {
    const real = await locate(folder);
    if (real === null || real === "outside" || seen.has(real)) return;
    if (!(await stat(real)).isDirectory()) return;
    if (depth > depthMax) {
      problems.error(start(folder), `Expected folders at most ${depthMax} deep, got more.`);
      return;
    }
    const within = new Set([...seen, real]); // A link to a folder above would go round for ever.
    for (const name of (await readdir(real)).sort()) {
      const path = posix.join(folder, name);
      const kind = await kindOf(path);
      if (kind === "directory") await walk(path, depth + 1, within, found);
      else if (kind === "file" && name.endsWith(".toml")) {
        if (++filesSeen <= filesMax) found.push(path);
        else if (filesSeen === filesMax + 1) {
          problems.error(start(path), `Expected at most ${filesMax} files, got more.`);
        }
      }
    }
  }

  return { root, readText, listToml, kindOf };
}

/** The first character of a file. */
export function start(file: string): Position {
  return { file, line: 1, column: 1 };
}

function isInside(root: string, path: string): boolean {
  const way = relative(root, path);
  return way === "" || (way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way));
}
