/**
 * The entries of the app format that this version does not use yet: they must be TOML, and one warning
 * for each kind says that they have no effect.
 */
import { type AppFolder, start } from "./app-folder.ts";
import type { ProblemList } from "./problem-list.ts";
import { readToml } from "./read-toml.ts";

const laterKinds = [
  "stack",
  "permissions",
  "secrets",
  "policies",
  "break_glass",
  "operation_roles",
  "actions",
  "runbooks",
  "installs",
  "branch",
  "branches",
  "kubernetes_contexts",
  "triggers",
  "installer",
];

/** Reads them all for their syntax. */
export async function readLaterFiles(folder: AppFolder, problems: ProblemList): Promise<void> {
  for (const kind of laterKinds) {
    let first: string | null = null;
    for (const file of [`${kind}.toml`, ...(await folder.listToml(kind))]) {
      const source = await readToml(folder, file, problems);
      if (source && Object.keys(source.table).length > 0) first ??= file;
    }
    if (first !== null) {
      problems.warn(start(first), `This version does not use \`${kind}\` yet; it has no effect.`);
    }
  }
}
