/** Reads one TOML file of an app; a file that is absent or of zero bytes is no file. */
import type { AppFolder } from "./app-folder.ts";
import type { ProblemList } from "./problem-list.ts";
import { parseTomlFile, type TomlFile } from "./toml-file.ts";

/** The parsed file, or null when there is none or its fault is noted. */
export async function readToml(
  folder: AppFolder,
  file: string,
  problems: ProblemList,
): Promise<TomlFile | null> {
  const text = await folder.readText(file);
  return text === null ? null : parseTomlFile(file, text, problems);
}
