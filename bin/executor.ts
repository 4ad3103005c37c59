/**
 * `executor <job folder>`: runs one job. Ends with 0 when an outcome was written, whatever it says;
 * with 1 when none could be, 2 for a wrong command line. What it prints goes to `stderr.log`.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import "./plain-schemas.ts";
import { executeJob } from "../src/executor/execute.ts";
import { describeError } from "../src/model/fault.ts";

/** Loaded on demand: a plan does not pay for what only a build needs. */
const operations = {
  build: async () => (await import("../src/executor/build.ts")).build,
  sync: async () => (await import("../src/executor/sync.ts")).sync,
  plan: async () => (await import("../src/executor/plan.ts")).plan,
  apply: async () => (await import("../src/executor/apply.ts")).apply,
  destroy: async () => (await import("../src/executor/destroy.ts")).destroy,
  provision: async () => (await import("../src/executor/sandbox.ts")).operateSandbox,
};

const folder = process.argv[2];
if (folder === undefined) {
  console.error("Expected `executor <job folder>`.");
  process.exit(2);
}

const cancel = new AbortController();
process.on("SIGTERM", () => cancel.abort());
process.on("SIGINT", () => cancel.abort());

// Bundled or not, the plugins' program lies beside this one.
const isBundled = import.meta.filename.endsWith(".mjs");
const pluginProgram = join(import.meta.dirname, isBundled ? "plugin.mjs" : "plugin.ts");

try {
  await executeJob(folder, {
    loadOperation: (operation, isSandbox) =>
      isSandbox ? operations.provision() : operations[operation](),
    pluginCommand: (name) => [process.execPath, ...process.execArgv, pluginProgram, name],
    searchPath: process.env.PATH ?? "/usr/local/bin:/usr/bin:/bin",
    signal: cancel.signal,
    now: () => new Date(),
    random: randomBytes,
    reportBug: (text) => console.error(text),
  });
  process.exit(0);
} catch (error) {
  console.error(describeError(error));
  process.exit(1);
}
