/** `landfall server` and `landfall agent`: start those programs in the foreground. */
import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import type { Command } from "commander";
import { Fault } from "../../model/fault.ts";
import { withExamples } from "../command-options.ts";
import type { CliContext } from "../context.ts";

/** Adds both commands. */
export function addProgramCommands(program: Command, context: CliContext): void {
  addProgram(program, context, "server", "run the server in the foreground");
  addProgram(program, context, "agent", "run an agent in the foreground");
}

function addProgram(
  program: Command,
  context: CliContext,
  name: "server" | "agent",
  description: string,
): void {
  const command = program
    .command(name)
    .description(description)
    .requiredOption("--config <file>", "its configuration, a JSON file");
  withExamples(command, [`${name} --config /etc/landfall/${name}.json`]);
  command.action(async (options: { config: string }) => {
    const config = resolve(context.cwd, options.config);
    if (!(await stat(config).catch(() => null))?.isFile()) {
      throw new Fault(
        "invalid",
        `Expected the ${name}'s configuration in \`${config}\`, got no file. Check \`--config\`.`,
      );
    }
    const programs = await context.preparePrograms();
    context.exitWith(await context.runForeground([...programs[name], "--config", config]));
  });
}
