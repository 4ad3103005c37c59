/** What a person is told of anything that a command threw. */
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { formatProblems } from "../config/format-problems.ts";
import { isFault } from "../model/fault.ts";
import type { Terminal } from "./terminal.ts";
import { paint } from "./terminal.ts";

/** The text for standard error; a stack trace only where the fault is ours. */
export function describeFailure(
  error: unknown,
  settings: { colours: boolean; directory: string },
): string {
  const mark = paint(settings.colours, "bad", "error:");
  if (!isFault(error)) {
    const detail = error instanceof Error ? (error.stack ?? error.message) : String(error);
    return `${mark} This is a bug in Landfall; please report it with the lines below.\n${detail}\n`;
  }
  const problems = formatProblems(error.problems, lineReader(settings.directory));
  return `${problems === "" ? "" : `${problems}\n\n`}${mark} ${error.message}\n`;
}

/** Writes it. */
export function reportProblem(terminal: Terminal, error: unknown, directory: string): void {
  terminal.note(describeFailure(error, { colours: terminal.colours, directory }));
}

/** Lines of files below a directory; null where they cannot be read any more. */
export function lineReader(directory: string): (file: string, line: number) => string | null {
  const files = new Map<string, string[] | null>();
  return (file, line) => {
    if (!files.has(file)) files.set(file, readLines(resolve(directory, file)));
    return files.get(file)?.[line - 1] ?? null;
  };
}

function readLines(path: string): string[] | null {
  try {
    return readFileSync(path, "utf8").split(/\r?\n/);
  } catch {
    return null;
  }
}
