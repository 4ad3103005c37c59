/**
 * Reads desired/: what shall run, one file a name.
 *
 * Invariant: a file that is half written, too large, or not of the contract's form harms nobody. It is named
 * once in the log; what it said before goes on, and where it said nothing before its process is left as it is.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describeError } from "../model/fault.ts";
import { DesiredProcess } from "../protocol/supervisor-folder.ts";
import type { Log } from "./log.ts";

const nameForm = /^@?[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;
const fileForm = /^([^.].*)\.json$/;
const fileBytesMax = 1024 * 1024;
const namesMax = 1000;

/** A file as last read; `desired` is null while it was never valid. */
interface Entry {
  readonly stamp: string;
  readonly desired: DesiredProcess | null;
}

export interface DesiredFolder {
  /** Looks again; only files that changed are read. False when the folder could not be listed. */
  read(): boolean;
  names(): IterableIterator<string>;
  /** What shall run under this name: null = nothing, "unknown" = there is a file, but none that was ever valid. */
  find(name: string): DesiredProcess | "unknown" | null;
}

/** True for a name that may name a file: no path, no hidden file. */
export function isProcessName(name: string): boolean {
  return nameForm.test(name);
}

/** The folder desired/, to be read again and again. */
export function createDesiredFolder(directory: string, log: Log): DesiredFolder {
  let entries = new Map<string, Entry>();
  const refused = new Set<string>();

  function read(): boolean {
    let files: string[];
    try {
      files = readdirSync(directory).sort();
    } catch (error) {
      log("warn", "desired folder not read", { reason: describeError(error) });
      return false;
    }
    const next = new Map<string, Entry>();
    for (const file of files) {
      const name = fileForm.exec(file)?.[1];
      if (name === undefined) continue;
      if (!isProcessName(name) || next.size >= namesMax) {
        if (!refused.has(file)) log("warn", "desired file ignored", { file, reason: "name" });
        refused.add(file);
        continue;
      }
      const entry = readEntry(join(directory, file), entries.get(name), log);
      if (entry !== null) next.set(name, entry);
    }
    entries = next;
    return true;
  }

  function find(name: string): DesiredProcess | "unknown" | null {
    const entry = entries.get(name);
    return entry === undefined ? null : (entry.desired ?? "unknown");
  }

  return { read, find, names: () => entries.keys() };
}

/** Null when the file went away meanwhile. */
function readEntry(file: string, before: Entry | undefined, log: Log): Entry | null {
  let stamp = "unread";
  try {
    const { ino, size, mtimeNs } = statSync(file, { bigint: true });
    stamp = `${ino}.${size}.${mtimeNs}`;
    if (before?.stamp === stamp) return before;
    if (size > fileBytesMax)
      throw new Error(`Expected at most ${fileBytesMax} bytes, got ${size}.`);
    return { stamp, desired: DesiredProcess.parse(JSON.parse(readFileSync(file, "utf8"))) };
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    if (before?.stamp !== stamp) {
      log("warn", "desired file ignored", { file, reason: refusalOf(error) });
    }
    return { stamp, desired: before?.desired ?? null };
  }
}

/** Where the form is broken, never what is written there: a desired process holds secrets. */
function refusalOf(error: unknown): string {
  if (error instanceof SyntaxError) return "not JSON";
  if (error instanceof Error && "issues" in error && Array.isArray(error.issues)) {
    return `not a desired process: ${error.issues.map((issue) => issue.path?.join(".")).join(", ")}`;
  }
  return describeError(error);
}
