/** What this machine can run, and why not the rest. */
import { access, constants, realpath } from "node:fs/promises";
import { dirname, join } from "node:path";

const terraformPrograms = ["terraform", "tofu"] as const;

export interface Capabilities {
  readonly capabilities: string[];
  /** Capability → the reason why it is missing. */
  readonly missing: Record<string, string>;
  /** Where the tools lie, which jobs must see. */
  readonly toolFolders: string[];
}

/** Looks on the PATH for the tools that component types need. */
export async function findCapabilities(searchPath: string): Promise<Capabilities> {
  for (const program of terraformPrograms) {
    const path = await findProgram(program, searchPath);
    if (path === null) continue;
    const folders = [dirname(path), dirname(await realpath(path))];
    return {
      capabilities: ["process", "terraform"],
      missing: {},
      toolFolders: [...new Set(folders)].filter((folder) => !folder.startsWith("/usr/")),
    };
  }
  return {
    capabilities: ["process"],
    missing: { terraform: "neither `terraform` nor `tofu` is on the PATH" },
    toolFolders: [],
  };
}

async function findProgram(program: string, searchPath: string): Promise<string | null> {
  for (const directory of searchPath.split(":").filter((part) => part.startsWith("/"))) {
    const path = join(directory, program);
    const isThere = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return path;
  }
  return null;
}
