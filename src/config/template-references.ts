/**
 * Finds every reference in the texts of a component, each with its place in a file.
 *
 * Two ways, as the app format has it: templates, which are parsed and whose faults are told; and the
 * plain mention of `nuon.components.<name>.outputs.` anywhere in a text, which implies a dependency.
 */
import type { Position } from "../model/fault.ts";
import { parseTemplate, referencesOf, TemplateError } from "../model/template.ts";
import { placeOf } from "../model/template-error.ts";
import type { ProblemList } from "./problem-list.ts";
import type { TomlFile } from "./toml-file.ts";
import type { TomlPath } from "./toml-positions.ts";

export interface PlacedReference {
  /** Below `.nuon`: `["components", "database", "outputs", "url"]`. */
  readonly path: readonly string[];
  readonly position: Position;
  /** True when nothing is wrong if it leads nowhere. */
  readonly optional: boolean;
}

const mention = /(?:nuon|landfall)\.components\.([a-z0-9_]+)\.outputs\./g;
/** Keys that are never rendered. */
const plainKeys = new Set([
  "name",
  "type",
  "dependencies",
  "source",
  "public_repo",
  "connected_repo",
  "needs",
  "labels",
]);

/** All references of a component's file and of the files that it takes texts from. */
export function collectReferences(
  source: TomlFile,
  files: readonly { readonly file: string; readonly text: string }[],
  problems: ProblemList,
): PlacedReference[] {
  const references: PlacedReference[] = [];
  for (const { path, text } of textsOf(source.table, [])) {
    if (plainKeys.has(String(path[0]))) continue;
    const place = (offset: number) => source.positionInside(path, offset);
    references.push(...referencesInText(text, place, problems));
  }
  for (const { file, text } of files) {
    const place = (offset: number) => ({ file, ...placeOf(text, offset) });
    references.push(...referencesInText(text, place, problems));
  }
  return references;
}

/** The references of one text; `place` turns an offset into a position. */
export function referencesInText(
  text: string,
  place: (offset: number) => Position,
  problems: ProblemList,
): PlacedReference[] {
  const references: PlacedReference[] = [];
  for (const found of text.matchAll(mention)) {
    const path = ["components", found[1] ?? "", "outputs"];
    references.push({ path, position: place(found.index), optional: true });
  }
  try {
    for (const { path, offset, optional } of referencesOf(parseTemplate(text))) {
      references.push({ path, position: place(offset), optional });
    }
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error;
    problems.error(place(error.offset), `In a template: ${error.reason}`);
  }
  return references;
}

function* textsOf(value: unknown, path: TomlPath): Generator<{ path: TomlPath; text: string }> {
  if (typeof value === "string") yield { path, text: value };
  else if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) yield* textsOf(item, [...path, index]);
  } else if (value !== null && typeof value === "object" && !(value instanceof Date)) {
    for (const [key, item] of Object.entries(value)) yield* textsOf(item, [...path, key]);
  }
}
