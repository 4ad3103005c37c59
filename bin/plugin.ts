/**
 * `plugin <name>`: one built-in plugin as a process. Reads a request on stdin, writes events on stdout.
 */
import "./plain-schemas.ts";
import { servePlugin } from "../src/plugin/serve.ts";

/** Loaded on demand: a `process` plan does not pay for Terraform. */
const plugins = new Map([
  ["noop", () => import("../src/plugins/noop/index.ts")],
  ["process", () => import("../src/plugins/process/index.ts")],
  ["job", () => import("../src/plugins/job/index.ts")],
  ["terraform_module", () => import("../src/plugins/terraform-module/index.ts")],
  ["sandbox/local", () => import("../src/plugins/sandbox-local/index.ts")],
]);

const name = process.argv[2] ?? "";
const load = plugins.get(name);
if (!load) {
  console.error(`Expected one of ${[...plugins.keys()].join(", ")}, got \`${name}\`.`);
  process.exit(2);
}

const cancel = new AbortController();
process.on("SIGTERM", () => cancel.abort());
// The executor is gone: nobody hears what comes next.
process.stdout.on("error", () => cancel.abort());

const { plugin } = await load();
process.exitCode = await servePlugin(plugin, {
  input: process.stdin,
  output: process.stdout,
  signal: cancel.signal,
  searchPath: process.env.PATH ?? "",
});
