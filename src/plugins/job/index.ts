/**
 * `job`: a program from the component's source, run to its end with every apply (a migration, a set-up).
 *
 * It runs in a copy of the artifact, so that it may write beside its own files and never changes what
 * others run from. What must last goes to `LANDFALL_STATE_DIR`.
 */
import { cp, mkdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import { digestOfJson } from "../../model/json.ts";
import { runCommand } from "../../plugin/command.ts";
import { CommandLine, DurationMs, EnvVars } from "../../plugin/config-schema.ts";
import { OperationFailure, type Plugin, type PluginContext } from "../../plugin/plugin.ts";
import { parseConfig, requireGiven } from "../../plugin/serve.ts";
import { createHeldLines, type HeldLines } from "./held-lines.ts";
import { outputsBytesMax, parseOutputs } from "./outputs-file.ts";

const defaultTimeoutMs = 15 * 60_000;

const Config = z.object({
  command: CommandLine,
  env_vars: EnvVars.default({}),
  timeout: DurationMs.default(defaultTimeoutMs),
  /** What it declares to give; an output that is not declared is sensitive until somebody says otherwise. */
  outputs: z.record(z.string(), z.object({ sensitive: z.boolean().default(false) })).default({}),
});

type Config = z.output<typeof Config>;
type Outputs = ReturnType<typeof parseOutputs>;

export const plugin: Plugin = {
  sheet: { name: "job", needs: ["process"], operations: ["build", "plan", "apply", "destroy"] },
  operations: { build, plan, apply, destroy },
};

async function build({ request }: PluginContext): Promise<void> {
  const source = requireGiven(request.sourceDirectory, "sourceDirectory");
  await cp(source, requireGiven(request.outputDirectory, "outputDirectory"), {
    recursive: true,
    verbatimSymlinks: true,
  });
}

async function plan(context: PluginContext): Promise<void> {
  const { request } = context;
  const config = parseConfig(Config, request);
  const digest = digestOfJson({ config, artifact: request.artifactDigest });
  const names = Object.keys(config.env_vars).sort();
  const lines = [
    `+ run ${config.command.join(" ")}`,
    `  in ${request.artifactDigest ?? "an empty folder"}`,
    ...names.map((name) => `  env ${name}: ${config.env_vars[name]}`),
  ];
  // It is run with every apply; `changes` tells whether anything about it differs.
  context.givePlan({ plan: { digest }, diff: lines.join("\n"), changes: request.state !== digest });
}

async function apply(context: PluginContext): Promise<void> {
  const { request } = context;
  const config = parseConfig(Config, request);
  const outputsFile = join(request.workDirectory, "outputs");
  await writeFile(outputsFile, "", { mode: 0o600 });
  const held = holdLines(context, config);
  let outputs: Outputs = {};
  let exitCode: number;
  try {
    exitCode = await runCommand(config.command, {
      job: request.job,
      directory: await copyArtifact(context),
      environment: await environmentOf(context, config, outputsFile),
      timeoutMs: config.timeout,
      onLine: held.add,
    });
  } finally {
    // Also of a run that failed: what it gave may be sensitive, and the executor must know before it speaks.
    outputs = await readOutputs(outputsFile);
    for (const [name, value] of Object.entries(outputs)) {
      context.giveOutput(name, value, { sensitive: config.outputs[name]?.sensitive ?? true });
    }
    held.release((line) => context.log(line));
  }
  if (exitCode !== 0) {
    throw new OperationFailure(
      `Expected \`${config.command.join(" ")}\` to end with 0, got ${exitCode}. Its last lines are in the job's log.`,
    );
  }
  const missing = Object.keys(config.outputs).filter((name) => !Object.hasOwn(outputs, name));
  if (missing.length > 0) {
    throw new OperationFailure(
      `Expected the declared outputs ${missing.map((name) => `\`${name}\``).join(", ")} in the file \`$LANDFALL_OUTPUTS\`, got none.`,
    );
  }
  context.saveState(digestOfJson({ config, artifact: request.artifactDigest }));
}

/** Lines go out at once, unless the program declares sensitive outputs. */
function holdLines(context: PluginContext, { outputs }: Config): HeldLines {
  if (Object.values(outputs).some(({ sensitive }) => sensitive)) {
    context.log("It declares sensitive outputs: its lines follow once these are known.");
    return createHeldLines();
  }
  return { add: (line) => context.log(line), release: () => {} };
}

async function environmentOf(
  context: PluginContext,
  config: Config,
  outputsFile: string,
): Promise<Record<string, string>> {
  const { request } = context;
  return {
    PATH: `${dirname(process.execPath)}:${context.searchPath}`,
    HOME: request.workDirectory,
    LANG: "C.UTF-8",
    LANDFALL_COMPONENT: request.component.name,
    LANDFALL_INSTALL_ID: request.install?.id ?? "",
    LANDFALL_INSTALL_NAME: request.install?.name ?? "",
    LANDFALL_OUTPUTS: outputsFile,
    LANDFALL_STATE_DIR: await makeStateDirectory(context),
    ...config.env_vars,
  };
}

/** What ran has ended; what it kept in its folder goes. */
async function destroy({ request }: PluginContext): Promise<void> {
  if (request.supervisorDirectory === null) return;
  const directory = join(request.supervisorDirectory, "data", request.component.name);
  await rm(directory, { recursive: true, force: true });
}

async function copyArtifact({ request }: PluginContext): Promise<string> {
  const directory = join(request.workDirectory, "run");
  await rm(directory, { recursive: true, force: true });
  await mkdir(directory, { recursive: true });
  if (request.artifactDirectory) {
    await cp(request.artifactDirectory, directory, { recursive: true, verbatimSymlinks: true });
  }
  return directory;
}

async function makeStateDirectory({ request }: PluginContext): Promise<string> {
  const directory =
    request.supervisorDirectory === null
      ? join(request.workDirectory, "state")
      : join(request.supervisorDirectory, "data", request.component.name);
  await mkdir(directory, { recursive: true });
  return directory;
}

async function readOutputs(file: string) {
  const { size } = await stat(file);
  if (size > outputsBytesMax) {
    throw new OperationFailure(
      `Expected at most ${outputsBytesMax} bytes of outputs, got ${size}. Keep large things in \`$LANDFALL_STATE_DIR\`.`,
    );
  }
  return parseOutputs(await readFile(file, "utf8"));
}
