/** Reads where an app's installs live: `sandbox.toml`, and `runner.toml` beside it. */
import type { SandboxConfig } from "../model/app-config.ts";
import type { Json } from "../model/json.ts";
import { didYouMean } from "../model/nearest.ts";
import { type AppFolder, start } from "./app-folder.ts";
import { checkTable } from "./check-table.ts";
import { resolveText } from "./file-reference.ts";
import { Runner, Sandbox } from "./file-schemas.ts";
import type { ProblemList } from "./problem-list.ts";
import { readToml } from "./read-toml.ts";
import { collectReferences, type PlacedReference } from "./template-references.ts";
import type { TomlFile } from "./toml-file.ts";

const laterTypes = ["terraform", "pulumi"];
const configKeys = ["vars", "env_vars", "source"] as const;

export interface ReadSandbox {
  readonly config: SandboxConfig | null;
  readonly references: readonly PlacedReference[];
}

/** The sandbox, or null with its faults noted. */
export async function readSandbox(folder: AppFolder, problems: ProblemList): Promise<ReadSandbox> {
  const source = await readToml(folder, "sandbox.toml", problems);
  const table = source && checkTable(Sandbox, source, [], problems);
  if ((await folder.readText("sandbox.toml")) === null) {
    problems.error(
      start("sandbox.toml"),
      'Expected a file `sandbox.toml`, got none. Add it; `type = "local"` is the machine itself.',
    );
  }
  await readRunner(folder, table?.type === "local", problems);
  if (!source || !table) return { config: null, references: [] };
  checkType(table.type, source, problems);
  const config: Record<string, Json> = {};
  for (const key of configKeys) if (table[key] !== undefined) config[key] = table[key];
  const files: { file: string; text: string }[] = [];
  for (const [index, entry] of (table.var_file ?? []).entries()) {
    const position = source.valuePositionOf(["var_file", index, "contents"]);
    const found = await resolveText(folder, entry.contents, ".", position, problems);
    if (found?.file) files.push({ file: found.file, text: found.text });
    if (found) config.var_file = [...((config.var_file as Json[]) ?? []), { contents: found.text }];
  }
  const references = collectReferences(source, files, problems);
  return { config: { type: table.type, config }, references };
}

function checkType(type: string, source: TomlFile, problems: ProblemList): void {
  if (type === "local") return;
  const position = source.valuePositionOf(["type"]);
  const got = laterTypes.includes(type)
    ? `\`${type}\`: the app format has it, but this version cannot provision it yet`
    : `\`${type}\``;
  const hint = laterTypes.includes(type) ? "" : didYouMean(type, ["local", ...laterTypes]);
  problems.error(position, `Expected the sandbox \`type = "local"\`, got ${got}.${hint}`);
}

async function readRunner(
  folder: AppFolder,
  isLocal: boolean,
  problems: ProblemList,
): Promise<void> {
  const text = await folder.readText("runner.toml");
  if (text === null) {
    if (!isLocal) {
      problems.error(
        start("runner.toml"),
        "Expected a file `runner.toml`, got none. Only a `local` sandbox can do without it.",
      );
    }
    return;
  }
  const source = await readToml(folder, "runner.toml", problems);
  if (source) checkTable(Runner, source, [], problems);
}
