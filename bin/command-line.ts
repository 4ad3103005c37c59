/**
 * The command line: `landfall COMMAND`. See `src/cli/exit-code.ts` for how it ends.
 *
 * Only this file reads the environment and the arguments, hears signals and ends the process. It is run
 * by `landfall.mjs`, bundled where the bundle is fresh.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import "./plain-schemas.ts";
import type { CliContext, Programs } from "../src/cli/context.ts";
import { exitCodes } from "../src/cli/exit-code.ts";
import { runProgram } from "../src/cli/program.ts";
import { createTerminal } from "../src/cli/terminal.ts";
import { errorCode } from "../src/model/file-fault.ts";

const root = join(import.meta.dirname, "..");
const compileCache = join(root, "dist", ".compile-cache");
const { env } = process;
let exitCode: number = exitCodes.done;

// `landfall jobs list | head`: whoever reads has seen enough.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(exitCode);
  throw error;
});

const context: CliContext = {
  terminal: createTerminal(process, { noColour: env.NO_COLOR, dumb: env.TERM === "dumb" }),
  cwd: process.cwd(),
  root,
  version: readVersion(),
  databaseUrl: env.DATABASE_URL || undefined,
  environment: programEnvironment(),
  now: () => new Date(),
  preparePrograms,
  runForeground,
  onStop,
  exitWith(code) {
    exitCode = code;
  },
};

await runProgram(process.argv.slice(2), context);
process.exit(exitCode);

function readVersion(): string {
  const { version }: { version: string } = JSON.parse(
    readFileSync(join(root, "package.json"), "utf8"),
  );
  return version;
}

/** Nothing else is inherited: NODE_EXTRA_CA_CERTS alone would cost each program 60 to 90 ms. */
function programEnvironment(): Record<string, string> {
  const kept = Object.entries({ HOME: env.HOME, LANG: env.LANG, TMPDIR: env.TMPDIR });
  const path = env.PATH ?? "/usr/local/bin:/usr/bin:/bin";
  return {
    ...Object.fromEntries(kept.flatMap(([name, value]) => (value ? [[name, value]] : []))),
    // The Node that runs us comes first, so that a process called `node` gets the same one.
    PATH: `${dirname(process.execPath)}:${path}`,
    NODE_COMPILE_CACHE: compileCache,
    // Bundles lie beside the sources or elsewhere; these stay where they are.
    LANDFALL_MIGRATIONS: join(root, "src", "server", "migrations"),
  };
}

async function preparePrograms(ownFolder?: string): Promise<Programs> {
  // Loaded on demand: a command that only asks the server does not pay for the bundler.
  const { bundlePrograms } = await import("./bundle.ts");
  const files = await bundlePrograms(root, join(root, "dist")).catch((error: unknown) => {
    if (ownFolder === undefined || !/^(EACCES|EPERM|EROFS)$/.test(errorCode(error) ?? ""))
      throw error;
    return bundlePrograms(root, ownFolder);
  });
  const command = (file: string) => [
    process.execPath,
    "--disable-warning=ExperimentalWarning",
    file,
  ];
  return {
    server: command(files.server),
    agent: command(files.agent),
    registry: command(files.registry),
    supervisor: command(files.supervisor),
    executor: command(files.executor),
    paths: [dirname(process.execPath), dirname(files.executor), ...toolFolders()],
  };
}

/** Where Terraform is, if it is not among the system's programs, which jobs see anyway. */
function toolFolders(): string[] {
  const folders = (env.PATH ?? "").split(delimiter).filter((folder) => folder.startsWith("/"));
  const holds = (folder: string) =>
    ["terraform", "tofu"].some((name) => existsSync(join(folder, name)));
  return folders.filter((folder) => !folder.startsWith("/usr/") && holds(folder));
}

async function runForeground(command: readonly string[]): Promise<number> {
  const [file = "", ...args] = command;
  const child = spawn(file, args, { stdio: "inherit" });
  // Ctrl-C reaches it too, as it is in our group; a SIGTERM is for us alone.
  process.on("SIGINT", () => {});
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  await once(child, "exit");
  return child.exitCode ?? exitCodes.failed;
}

function onStop(hear: (signal: "SIGINT" | "SIGTERM") => void): () => void {
  const interrupt = () => hear("SIGINT");
  const terminate = () => hear("SIGTERM");
  process.on("SIGINT", interrupt).on("SIGTERM", terminate).on("SIGHUP", terminate);
  return () => {
    process.off("SIGINT", interrupt).off("SIGTERM", terminate).off("SIGHUP", terminate);
  };
}
