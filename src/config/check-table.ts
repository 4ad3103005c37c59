/**
 * Checks a table of a TOML file against its schema and says what is wrong in a person's words.
 *
 * An unknown key is a warning and is left out; everything else that the schema refuses is an error.
 */
import { z } from "zod";
import { didYouMean } from "../model/nearest.ts";
import type { ProblemList } from "./problem-list.ts";
import type { TomlFile } from "./toml-file.ts";
import type { TomlPath } from "./toml-positions.ts";

/** What the schema makes of the table at `path`, or null when there is an error in it. */
export function checkTable<Schema extends z.ZodType>(
  schema: Schema,
  source: TomlFile,
  path: TomlPath,
  problems: ProblemList,
): z.output<Schema> | null {
  const table = structuredCloneOf(valueAt(source.table, path));
  const first = schema.safeParse(table, { reportInput: true });
  if (first.success) return first.data;
  for (const issue of first.error.issues) {
    if (issue.code === "unrecognized_keys") {
      warnUnknownKeys(schema, source, path, issue, problems);
      removeKeys(table, issue);
    }
  }
  const second = schema.safeParse(table, { reportInput: true });
  if (second.success) return second.data;
  for (const issue of second.error.issues) reportIssue(issue, source, path, problems);
  return null;
}

/** The value at a path, or undefined. */
export function valueAt(value: unknown, path: TomlPath): unknown {
  let inner = value;
  for (const key of path) {
    if (inner === null || typeof inner !== "object" || !Object.hasOwn(inner, key)) return undefined;
    inner = (inner as Record<string | number, unknown>)[key];
  }
  return inner;
}

type UnknownKeys = Extract<z.core.$ZodIssue, { code: "unrecognized_keys" }>;

function warnUnknownKeys(
  schema: z.ZodType,
  source: TomlFile,
  base: TomlPath,
  issue: UnknownKeys,
  problems: ProblemList,
): void {
  const path = [...base, ...keysOf(issue)];
  const known = knownKeys(schema, keysOf(issue));
  for (const key of issue.keys) {
    const hint = didYouMean(key, known);
    problems.warn(
      source.positionOf([...path, key]),
      `Expected a key that Landfall knows, got \`${key}\`; it has no effect.${hint}`,
    );
  }
}

function removeKeys(table: unknown, issue: UnknownKeys): void {
  const holder = valueAt(table, keysOf(issue));
  if (holder === null || typeof holder !== "object") return;
  for (const key of issue.keys) delete (holder as Record<string, unknown>)[key];
}

function reportIssue(
  issue: z.core.$ZodIssue,
  source: TomlFile,
  base: TomlPath,
  problems: ProblemList,
): void {
  const path = [...base, ...keysOf(issue)];
  const name = keysOf(issue).join(".");
  const got = issue.input;
  if (got === undefined && issue.code !== "custom") {
    problems.error(source.positionOf(path), `Expected the key \`${name}\`, got none. Add it.`);
    return;
  }
  const place = issue.code === "custom" ? source.positionOf(path) : source.valuePositionOf(path);
  problems.error(place, describeIssue(issue, name, got));
}

function describeIssue(issue: z.core.$ZodIssue, name: string, got: unknown): string {
  const label = name === "" ? "the file" : `\`${name}\``;
  if (issue.code === "custom") return issue.message;
  if (issue.code === "invalid_value") {
    const choices = issue.values.map(String);
    const hint = typeof got === "string" ? didYouMean(got, choices) : "";
    return `Expected ${label} to be one of ${listOf(choices)}, got ${describeValue(got)}.${hint}`;
  }
  if (issue.code === "invalid_type") {
    const advice =
      issue.expected === "string" && ["number", "boolean"].includes(typeof got)
        ? ` Write it in quotes: \`"${String(got)}"\`.`
        : "";
    return `Expected ${label} to be ${article(issue.expected)}, got ${describeValue(got)}.${advice}`;
  }
  if (issue.code === "too_small" || issue.code === "too_big") {
    const bound =
      issue.code === "too_small" ? `at least ${issue.minimum}` : `at most ${issue.maximum}`;
    return `Expected ${label} to have ${bound}, got ${describeValue(got)}.`;
  }
  return `Expected ${label} to be right, got ${describeValue(got)}: ${issue.message}.`;
}

/** The names that the schema knows at this path, for a hint. */
function knownKeys(schema: z.ZodType, path: TomlPath): string[] {
  let inner: unknown = schema;
  for (const key of path) inner = unwrap(inner, key);
  const shape = inner instanceof z.ZodType ? unwrapOptional(inner) : null;
  return shape instanceof z.ZodObject ? Object.keys(shape.shape) : [];
}

function unwrap(schema: unknown, key: string | number): unknown {
  const plain = schema instanceof z.ZodType ? unwrapOptional(schema) : schema;
  if (plain instanceof z.ZodObject) return plain.shape[key];
  if (plain instanceof z.ZodArray) return plain.element;
  return undefined;
}

function unwrapOptional(schema: z.ZodType): unknown {
  let inner: unknown = schema;
  while (inner instanceof z.ZodOptional || inner instanceof z.ZodDefault) inner = inner.unwrap();
  return inner;
}

function keysOf(issue: z.core.$ZodIssue): (string | number)[] {
  return issue.path.filter((key) => typeof key !== "symbol");
}

function article(kind: string): string {
  const words: Record<string, string> = {
    string: "text",
    int: "a whole number",
    number: "a number",
    boolean: "`true` or `false`",
    array: "a list",
    object: "a table",
    record: "a table",
  };
  return words[kind] ?? kind;
}

function describeValue(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (value instanceof Date) return "a date";
  if (value !== null && typeof value === "object") return "a table";
  if (typeof value === "string") return value.length > 60 ? "other text" : `\`${value}\``;
  return `the ${typeof value} ${String(value)}`;
}

function listOf(names: readonly string[]): string {
  return names.map((name) => `\`${name}\``).join(", ");
}

/** A copy whose keys may be removed; dates are kept. */
function structuredCloneOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(structuredCloneOf);
  if (value === null || typeof value !== "object" || value instanceof Date) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, structuredCloneOf(inner)]),
  );
}
