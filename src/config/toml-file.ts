/**
 * One TOML file of an app: its table, and the position of anything in it.
 *
 * Positions lead into strings too, so that a fault in a template is shown where it was written.
 */
import { parse, TomlError } from "smol-toml";
import type { Position } from "../model/fault.ts";
import { placeOf } from "../model/template-error.ts";
import type { ProblemList } from "./problem-list.ts";
import { findPlace, scanToml, type TomlPath } from "./toml-positions.ts";

export interface TomlFile {
  /** Relative to the app's root, with `/`. */
  readonly file: string;
  readonly text: string;
  readonly table: Record<string, unknown>;
  /** Of the key; of what is around it when it is missing. */
  positionOf(path: TomlPath): Position;
  /** Of the value itself. */
  valuePositionOf(path: TomlPath): Position;
  /** Of a place within a string's content. */
  positionInside(path: TomlPath, offset: number): Position;
}

/** Parses a file's text, or notes the syntax error and gives null. */
export function parseTomlFile(file: string, text: string, problems: ProblemList): TomlFile | null {
  let table: Record<string, unknown>;
  try {
    table = parse(text) as Record<string, unknown>;
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    const [reason = ""] = error.message.replace(/^Invalid TOML document: /, "").split("\n");
    problems.error(
      { file, line: error.line, column: error.column },
      `Expected TOML, got a syntax error: ${reason}.`,
    );
    return null;
  }
  return createTomlFile(file, text, table);
}

function createTomlFile(file: string, text: string, table: Record<string, unknown>): TomlFile {
  const places = scanToml(text);
  const at = (offset: number): Position => ({ file, ...placeOf(text, offset) });
  return {
    file,
    text,
    table,
    positionOf: (path) => at(findPlace(places, path)?.key ?? 0),
    valuePositionOf: (path) => at(findPlace(places, path)?.value ?? 0),
    positionInside(path, offset) {
      const start = findPlace(places, path)?.value ?? 0;
      return at(start + rawOffset(text.slice(start), offset));
    },
  };
}

/** How far into a string as it is written lies this offset of its content. */
function rawOffset(raw: string, offset: number): number {
  const quote = /^(?:"""|'''|"|')/.exec(raw)?.[0] ?? "";
  let at = quote.length;
  if (quote.length === 3) at += /^\r?\n/.exec(raw.slice(at))?.[0].length ?? 0;
  if (quote.startsWith("'")) return at + offset;
  const escaped =
    /\\(?:u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[ \t]*\r?\n[ \t\r\n]*|[\s\S])/y;
  for (let seen = 0; seen < offset && at < raw.length; ) {
    escaped.lastIndex = at;
    const found = escaped.exec(raw)?.[0];
    if (found === undefined) {
      at++;
      seen++;
    } else {
      at += found.length;
      // A backslash before a line's end joins lines and stands for nothing.
      if (!/^\\[ \t]*\r?\n/.test(found)) seen++;
    }
  }
  return at;
}
