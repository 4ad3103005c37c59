/** The built-in plugins as they really run, bundled, for tests. */
import { execFileSync } from "node:child_process";
import { join } from "node:path";

const root = join(import.meta.dirname, "../..");

/** The folder of the bundled programs, made anew when a source has changed. */
export function bundledPrograms(): string {
  const target = join(root, "dist");
  execFileSync(process.execPath, [join(root, "bin/bundle.ts"), target], { stdio: "pipe" });
  return target;
}

/** The command line of a built-in plugin. */
export function pluginCommand(name: string): string[] {
  return [process.execPath, join(bundledPrograms(), "plugin.mjs"), name];
}
