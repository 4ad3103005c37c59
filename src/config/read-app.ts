/**
 * Reads a directory into an `AppConfig`, or into everything that is wrong with it.
 *
 * Invariants: all problems are told at once, each with file, line and column; a config is given only
 * when there is no error; and nothing outside the directory is read.
 */
import { basename } from "node:path";
import type { AppConfig, ComponentConfig } from "../model/app-config.ts";
import type { Problem } from "../model/fault.ts";
import { type AppFolder, openAppFolder, start } from "./app-folder.ts";
import { checkReference, type KnownNames, resolveDependencies } from "./check-references.ts";
import { checkTable } from "./check-table.ts";
import { resolveText } from "./file-reference.ts";
import { Metadata } from "./file-schemas.ts";
import { createProblemList, type ProblemList } from "./problem-list.ts";
import { type ReadComponent, readComponent } from "./read-component.ts";
import { readInputs } from "./read-inputs.ts";
import { readLaterFiles } from "./read-later-files.ts";
import { readSandbox } from "./read-sandbox.ts";
import { readToml } from "./read-toml.ts";

const appNameForm = /^[a-z0-9][a-z0-9_-]{0,62}$/;

/** What a directory says: the app, when it has no error, and every problem. */
export async function readApp(
  directory: string,
): Promise<{ config: AppConfig | null; problems: Problem[] }> {
  const problems = createProblemList();
  const folder = await openAppFolder(directory, problems);
  const config = folder && (await readFolder(folder, problems));
  return { config: problems.hasErrors() ? null : config, problems: problems.all() };
}

async function readFolder(folder: AppFolder, problems: ProblemList): Promise<AppConfig | null> {
  const metadata = await readMetadata(folder, problems);
  const sandbox = await readSandbox(folder, problems);
  const inputs = await readInputs(folder, problems);
  const components = await readComponents(folder, problems);
  await readLaterFiles(folder, problems);

  const known: KnownNames = { components, inputs: new Set(inputs.map(({ name }) => name)) };
  for (const reference of sandbox.references) checkReference(reference, known, problems);
  const dependencies = resolveDependencies(known, problems);

  if (!metadata || !sandbox.config) return null;
  const complete = [...components.values()].flatMap(({ name, config }): ComponentConfig[] =>
    config ? [{ ...config, dependencies: [...(dependencies.get(name)?.keys() ?? [])].sort() }] : [],
  );
  return { ...metadata, sandbox: sandbox.config, inputs, components: complete };
}

async function readMetadata(folder: AppFolder, problems: ProblemList) {
  const source = await readToml(folder, "metadata.toml", problems);
  if ((await folder.readText("metadata.toml")) === null) {
    problems.error(start("metadata.toml"), "Expected a file `metadata.toml`, got none. Add it.");
  }
  const metadata = source && checkTable(Metadata, source, [], problems);
  if (!source || !metadata) return null;
  const name = metadata.name ?? basename(folder.root);
  if (!appNameForm.test(name)) {
    problems.error(
      source.positionOf(["name"]),
      `Expected an app's name of lower-case letters, digits, \`_\` and \`-\`, got \`${name}\`. Set \`name\`.`,
    );
  }
  if (metadata.readme !== undefined) {
    await resolveText(folder, metadata.readme, ".", source.valuePositionOf(["readme"]), problems);
  }
  return {
    name,
    displayName: metadata.display_name ?? name,
    description: metadata.description ?? "",
  };
}

/** By name, in the order of the files; of equal names the first counts. */
async function readComponents(
  folder: AppFolder,
  problems: ProblemList,
): Promise<Map<string, ReadComponent>> {
  const components = new Map<string, ReadComponent>();
  if ((await folder.kindOf("components")) !== "directory") {
    problems.error(
      start("components"),
      "Expected a folder `components/` with one file for each component, got none. Add it.",
    );
  }
  for (const file of await folder.listToml("components")) {
    const source = await readToml(folder, file, problems);
    const component = source && (await readComponent(folder, source, problems));
    if (!component) continue;
    const first = components.get(component.name);
    if (first) {
      problems.error(
        component.namePosition,
        `Expected each component once, got \`${component.name}\` again; it is also in \`${first.namePosition.file}\`, line ${first.namePosition.line}. Rename one.`,
      );
    } else components.set(component.name, component);
  }
  return components;
}
