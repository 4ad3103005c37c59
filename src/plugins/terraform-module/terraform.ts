/**
 * One run of `terraform` (or `tofu`): where it works, with which environment, and what it prints.
 *
 * Its state never touches a disk: the `http` backend gets address and password through the environment
 * of each run, because what stands in the configuration would be saved inside the plan file, and
 * another job applies that file with another address.
 */
import { access, constants, cp, mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type CommandOptions, runCommand } from "../../plugin/command.ts";
import { OperationFailure, type PluginContext } from "../../plugin/plugin.ts";
import { requireGiven } from "../../plugin/serve.ts";
import { type Config, splitVariables } from "./config.ts";

/** The job's own time limit ends it earlier; this one only says that no wait is endless. */
const runTimeoutMs = 24 * 3_600_000;
const capturedBytesMax = 32 * 1024 * 1024;
const programs = ["terraform", "tofu"] as const;
export const lockFile = ".terraform.lock.hcl";

export interface Terraform {
  readonly directory: string;
  /** Runs a subcommand; its lines go to the log. */
  run(args: readonly string[], accepted?: readonly number[]): Promise<number>;
  /** Runs a subcommand that prints a value; its standard output is returned and not logged. */
  capture(args: readonly string[]): Promise<string>;
}

/** A copy of the module in the job's own folder, initialised against the install's store. */
export async function openModule(
  context: PluginContext,
  config: Config,
  lock: string | null = null,
): Promise<Terraform> {
  const program = await findTerraform(context.searchPath);
  const directory = await copyModule(context, config);
  if (lock !== null) await writeFile(join(directory, lockFile), lock);
  const environment = await environmentFor(context, config);
  const terraform = terraformIn(context, program, directory, environment);
  await terraform.run(["init", "-input=false", "-no-color"]);
  return terraform;
}

/** The path of the first program found; a failure with code `missing_tool` when there is none. */
export async function findTerraform(searchPath: string): Promise<string> {
  for (const program of programs) {
    for (const directory of searchPath.split(":").filter((part) => part.startsWith("/"))) {
      const path = join(directory, program);
      const isThere = await access(path, constants.X_OK).then(
        () => true,
        () => false,
      );
      if (isThere) return path;
    }
  }
  throw new OperationFailure(
    "Expected `terraform` or `tofu` on the PATH of the install's agent, found neither. Install one of them there.",
    "missing_tool",
  );
}

function terraformIn(
  context: PluginContext,
  program: string,
  directory: string,
  environment: Record<string, string>,
): Terraform {
  const { job } = context.request;
  const execute = (args: readonly string[], onLine: CommandOptions["onLine"]) =>
    runCommand([program, ...args], {
      job,
      directory,
      environment,
      timeoutMs: runTimeoutMs,
      onLine,
    });
  return {
    directory,
    async run(args, accepted = [0]) {
      const last: string[] = [];
      const exitCode = await execute(args, (line, stream) => {
        context.log(line);
        if (stream === "stderr" && line.trim() !== "") last.push(line);
      });
      if (!accepted.includes(exitCode)) throw failed(args, exitCode, last);
      return exitCode;
    },
    async capture(args) {
      const lines: string[] = [];
      const last: string[] = [];
      let size = 0;
      const exitCode = await execute(args, (line, stream) => {
        size += line.length;
        if (size > capturedBytesMax) return;
        (stream === "stdout" ? lines : last).push(line);
      });
      if (exitCode !== 0) throw failed(args, exitCode, last);
      if (size > capturedBytesMax) {
        throw new OperationFailure(
          `Expected \`terraform ${args[0]}\` to print at most ${capturedBytesMax} bytes, got more.`,
        );
      }
      return lines.join("\n");
    },
  };
}

async function copyModule({ request }: PluginContext, config: Config): Promise<string> {
  const directory = join(request.workDirectory, "module");
  await rm(directory, { recursive: true, force: true });
  await mkdir(directory, { recursive: true });
  await cp(requireGiven(request.artifactDirectory, "artifactDirectory"), directory, {
    recursive: true,
    verbatimSymlinks: true,
  });
  // An override wins over a backend that the module names: state stays in the install's store.
  const backend = { terraform: { backend: { http: {} } } };
  await writeFile(join(directory, "landfall_backend_override.tf.json"), JSON.stringify(backend));
  const files = config.var_file.map(({ contents }) => contents);
  for (const [index, contents] of files.entries()) {
    await writeFile(join(directory, `landfall_${index}.auto.tfvars`), contents, { mode: 0o600 });
  }
  const variables = JSON.stringify(splitVariables(config).file);
  await writeFile(join(directory, "landfall_vars.auto.tfvars.json"), variables, { mode: 0o600 });
  return directory;
}

async function environmentFor(
  { request, searchPath }: PluginContext,
  config: Config,
): Promise<Record<string, string>> {
  const backend = requireGiven(request.stateBackend, "stateBackend");
  // Terraform complains when this variable names a file that is not there.
  const configFile = join(request.workDirectory, "terraform.rc");
  await writeFile(configFile, "");
  return {
    PATH: searchPath,
    HOME: request.workDirectory,
    LANG: "C.UTF-8",
    ...config.env_vars,
    ...splitVariables(config).environment,
    TF_DATA_DIR: join(request.workDirectory, "terraform-data"),
    TF_CLI_CONFIG_FILE: configFile,
    TF_IN_AUTOMATION: "1",
    TF_INPUT: "0",
    CHECKPOINT_DISABLE: "1",
    TF_HTTP_ADDRESS: backend.address,
    TF_HTTP_LOCK_ADDRESS: backend.address,
    TF_HTTP_UNLOCK_ADDRESS: backend.address,
    TF_HTTP_USERNAME: backend.username,
    TF_HTTP_PASSWORD: backend.password,
  };
}

function failed(
  args: readonly string[],
  exitCode: number,
  lines: readonly string[],
): OperationFailure {
  const reason = lines.slice(-30).join("\n");
  return new OperationFailure(
    `Expected \`terraform ${args[0]}\` to succeed, got exit code ${exitCode}.${reason ? `\n${reason}` : ""}`,
  );
}
