/**
 * Reads one component's file: its keys, source, declared outputs, and every reference its templates
 * make. Whether what it refers to exists is judged later, when all components are known.
 */
import { posix } from "node:path";
import type { ComponentConfig } from "../model/app-config.ts";
import { componentTypes, findComponentType, laterComponentTypes } from "../model/component-type.ts";
import type { Position } from "../model/fault.ts";
import type { Json, JsonObject } from "../model/json.ts";
import { didYouMean } from "../model/nearest.ts";
import type { AppFolder } from "./app-folder.ts";
import { checkTable, valueAt } from "./check-table.ts";
import { type ComponentTable, componentSchema, configKeys } from "./component-schema.ts";
import { resolveText } from "./file-reference.ts";
import type { ProblemList } from "./problem-list.ts";
import { collectReferences, type PlacedReference } from "./template-references.ts";
import type { TomlFile } from "./toml-file.ts";

/** A component as far as its own file tells. */
export interface ReadComponent {
  readonly name: string;
  readonly namePosition: Position;
  /** Listed in `dependencies`, each where it is written. */
  readonly listed: readonly { readonly name: string; readonly position: Position }[];
  readonly references: readonly PlacedReference[];
  /** Names that its outputs certainly have; null when nothing is known of them. */
  readonly outputNames: readonly string[] | null;
  /** Null when its file has errors: others may still refer to it. */
  readonly config: Omit<ComponentConfig, "dependencies"> | null;
}

const nameForm = /^[a-z0-9_]{1,63}$/;

/** The component of a file, or null when not even its name can be told. */
export async function readComponent(
  folder: AppFolder,
  source: TomlFile,
  problems: ProblemList,
): Promise<ReadComponent | null> {
  const typeName = source.table.type;
  const isKnown = typeof typeName === "string" && checkType(typeName, source, problems);
  const table = isKnown
    ? checkTable(componentSchema(typeName), source, [], problems)
    : checkNameAlone(source, problems);
  const name = source.table.name;
  if (typeof name !== "string") return null;
  checkName(name, source, problems);
  const config = table && isKnown ? await readConfig(folder, source, table, problems) : null;
  return {
    name,
    namePosition: source.valuePositionOf(["name"]),
    listed: listedDependencies(source),
    references: isKnown ? collectReferences(source, config?.files ?? [], problems) : [],
    outputNames: config && outputNamesOf(config.component),
    config: config?.component ?? null,
  };
}

function checkType(type: string, source: TomlFile, problems: ProblemList): boolean {
  if (findComponentType(type)) return true;
  const position = source.valuePositionOf(["type"]);
  if (laterComponentTypes.includes(type)) {
    problems.error(
      position,
      `Expected a component type that this version can deploy, got \`${type}\`: the app format has it, but this version cannot deploy it yet.`,
    );
    return false;
  }
  const names = componentTypes.map(({ name }) => name);
  if (type.includes("/")) {
    problems.error(
      position,
      `Expected a component type that this version can deploy, got \`${type}\`: a vendor's own types cannot be loaded yet.`,
    );
    return false;
  }
  const hint = didYouMean(type, [...names, ...laterComponentTypes]);
  problems.error(
    position,
    `Expected a component type (${names.map((name) => `\`${name}\``).join(", ")}), got \`${type}\`.${hint}`,
  );
  return false;
}

/** Where the type says nothing about the other keys, only the missing ones are told. */
function checkNameAlone(source: TomlFile, problems: ProblemList): null {
  for (const key of ["name", "type"]) {
    if (typeof source.table[key] === "string") continue;
    const got = source.table[key] === undefined ? "none. Add it" : "something that is not text";
    problems.error(source.positionOf([key]), `Expected the key \`${key}\`, got ${got}.`);
  }
  return null;
}

function checkName(name: string, source: TomlFile, problems: ProblemList): void {
  if (nameForm.test(name)) return;
  problems.error(
    source.valuePositionOf(["name"]),
    `Expected a component's name of lower-case letters, digits and \`_\`, at most 63, got \`${name}\`.`,
  );
}

function listedDependencies(source: TomlFile) {
  const listed = valueAt(source.table, ["dependencies"]);
  if (!Array.isArray(listed)) return [];
  return listed.flatMap((name: unknown, index) =>
    typeof name === "string"
      ? [{ name, position: source.valuePositionOf(["dependencies", index]) }]
      : [],
  );
}

async function readConfig(
  folder: AppFolder,
  source: TomlFile,
  table: ComponentTable,
  problems: ProblemList,
) {
  const files: { file: string; text: string }[] = [];
  const config: Record<string, Json> = {};
  for (const key of configKeys(table.type, table)) {
    if (table[key] !== undefined) config[key] = asJson(table[key]);
  }
  const varFiles = await readVarFiles(folder, source, table, files, problems);
  if (varFiles) config.var_file = varFiles;
  const outputs = declaredOutputs(table);
  // The job's program gives its outputs by name alone; the plugin must know which are sensitive.
  if (table.type === "job" && Object.keys(outputs).length > 0) config.outputs = outputs;
  const needs = [...(findComponentType(table.type)?.needs ?? []), ...(table.needs ?? [])];
  const component: Omit<ComponentConfig, "dependencies"> = {
    name: table.name,
    type: table.type,
    source: await readSource(folder, source, table, problems),
    config,
    outputs,
    needs: [...new Set(needs)].sort(),
    position: source.positionOf(["name"]),
  };
  return { component, files };
}

async function readVarFiles(
  folder: AppFolder,
  source: TomlFile,
  table: ComponentTable,
  files: { file: string; text: string }[],
  problems: ProblemList,
): Promise<JsonObject[] | null> {
  if (table.type === "noop" || !Array.isArray(table.var_file)) return null;
  const resolved: JsonObject[] = [];
  for (const [index, entry] of (table.var_file as { contents: string }[]).entries()) {
    const position = source.valuePositionOf(["var_file", index, "contents"]);
    const found = await resolveText(folder, entry.contents, "components", position, problems);
    if (found?.file) files.push({ file: found.file, text: found.text });
    if (found) resolved.push({ contents: found.text });
  }
  return resolved;
}

async function readSource(
  folder: AppFolder,
  source: TomlFile,
  table: ComponentTable,
  problems: ProblemList,
): Promise<{ path: string } | null> {
  const git = ["public_repo", "connected_repo"].find((key) => table[key] !== undefined);
  if (git !== undefined && !table.source) {
    problems.error(
      source.positionOf([git]),
      `Expected \`[source]\` with a \`path\` in the app's directory, got \`[${git}]\`, which this version does not fetch yet.`,
    );
    return null;
  }
  if (!table.source) {
    if (table.type === "terraform_module") {
      problems.error(
        source.positionOf(["type"]),
        "Expected `[source]` with the `path` of the module's folder, got none. Add it.",
      );
    }
    return null;
  }
  const { path } = table.source;
  const kind = await folder.kindOf(path);
  if (kind === "directory") return { path: posix.normalize(path).replace(/(?<=.)\/$/, "") };
  const got =
    kind === "outside" ? "a path that leaves the app's directory" : (kind ?? "nothing there");
  problems.error(
    source.valuePositionOf(["source", "path"]),
    `Expected a folder at \`${path}\`, got ${got}. The path is relative to the app's root.`,
  );
  return null;
}

function declaredOutputs(table: ComponentTable): Record<string, { sensitive: boolean }> {
  if (table.type !== "noop") {
    return { ...(table.outputs as Record<string, { sensitive: boolean }> | undefined) };
  }
  // `noop` gives what its file says: the values are the declaration.
  const names = (key: string) => Object.keys((table[key] as object | undefined) ?? {});
  return Object.fromEntries([
    ...names("outputs").map((name) => [name, { sensitive: false }]),
    ...names("sensitive_outputs").map((name) => [name, { sensitive: true }]),
  ]);
}

function outputNamesOf(component: Omit<ComponentConfig, "dependencies">): string[] | null {
  const always = findComponentType(component.type)?.outputs ?? [];
  const names = [...always, ...Object.keys(component.outputs)];
  return names.length === 0 ? null : names;
}

/** Values as JSON has them; a date becomes its text. */
function asJson(value: unknown): Json {
  return JSON.parse(JSON.stringify(value ?? null)) as Json;
}
