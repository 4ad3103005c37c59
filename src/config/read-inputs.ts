/** Reads the inputs of an app: `inputs.toml`, or one file each in `inputs/` and `input_groups/`. */
import type { InputConfig } from "../model/app-config.ts";
import { didYouMean } from "../model/nearest.ts";
import { type AppFolder, start } from "./app-folder.ts";
import { checkTable } from "./check-table.ts";
import { Input, InputGroup, InputsFile } from "./file-schemas.ts";
import type { ProblemList } from "./problem-list.ts";
import { readToml } from "./read-toml.ts";
import type { TomlFile } from "./toml-file.ts";
import type { TomlPath } from "./toml-positions.ts";

const nameForm = /^[a-z0-9_.{}]+$/;

interface Entry {
  readonly source: TomlFile;
  readonly path: TomlPath;
}

/** All inputs in the order of the files. Faulty ones are left out, their faults noted. */
export async function readInputs(folder: AppFolder, problems: ProblemList): Promise<InputConfig[]> {
  const { inputs, groups } = await findEntries(folder, problems);
  const groupNames = new Set<string>();
  for (const { source, path } of groups) {
    const group = checkTable(InputGroup, source, path, problems);
    if (group) groupNames.add(group.name);
  }
  const read = new Map<string, InputConfig>();
  for (const entry of inputs) {
    const input = readInput(entry, groupNames, problems);
    if (!input) continue;
    if (read.has(input.name)) {
      problems.error(
        entry.source.positionOf([...entry.path, "name"]),
        `Expected each input once, got \`${input.name}\` again. Rename or remove one.`,
      );
    } else read.set(input.name, input);
  }
  return [...read.values()];
}

function readInput(
  { source, path }: Entry,
  groupNames: ReadonlySet<string>,
  problems: ProblemList,
): InputConfig | null {
  const input = checkTable(Input, source, path, problems);
  if (!input) return null;
  if (!nameForm.test(input.name)) {
    problems.error(
      source.valuePositionOf([...path, "name"]),
      `Expected an input's name of lower-case letters, digits and \`_\`, got \`${input.name}\`.`,
    );
  }
  if (input.group !== undefined && !groupNames.has(input.group)) {
    problems.error(
      source.valuePositionOf([...path, "group"]),
      `Expected a group that is declared, got \`${input.group}\`.${didYouMean(input.group, groupNames)}`,
    );
  }
  return {
    name: input.name,
    displayName: input.display_name ?? input.name,
    description: input.description ?? "",
    group: input.group ?? "",
    default: input.default === undefined ? null : String(input.default),
    required: input.required ?? false,
    sensitive: input.sensitive ?? false,
  };
}

async function findEntries(
  folder: AppFolder,
  problems: ProblemList,
): Promise<{ inputs: Entry[]; groups: Entry[] }> {
  const single = await readToml(folder, "inputs.toml", problems);
  const inputFiles = await folder.listToml("inputs");
  const groupFiles = await folder.listToml("input_groups");
  if (single) {
    if (inputFiles.length + groupFiles.length > 0) {
      problems.error(
        start("inputs.toml"),
        "Expected inputs in `inputs.toml` or in `inputs/` and `input_groups/`, got both. Keep one form.",
      );
    }
    return entriesOfFile(single, problems);
  }
  return {
    inputs: await entriesOfFolder(folder, inputFiles, problems),
    groups: await entriesOfFolder(folder, groupFiles, problems),
  };
}

function entriesOfFile(source: TomlFile, problems: ProblemList) {
  const table = checkTable(InputsFile, source, [], problems);
  const entries = (name: "input" | "group") =>
    (table?.[name] ?? []).map((_, index): Entry => ({ source, path: [name, index] }));
  return { inputs: entries("input"), groups: entries("group") };
}

async function entriesOfFolder(folder: AppFolder, files: string[], problems: ProblemList) {
  const entries: Entry[] = [];
  for (const file of files) {
    const source = await readToml(folder, file, problems);
    if (source) entries.push({ source, path: [] });
  }
  return entries;
}
