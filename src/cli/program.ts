/** The command line `landfall`: its commands, its help, and how it ends. */
import { Command, CommanderError } from "commander";
import { withExamples } from "./command-options.ts";
import { addAgentsCommand } from "./commands/agents.ts";
import { addBuildsCommand } from "./commands/builds.ts";
import { addDeployCommand } from "./commands/deploy.ts";
import { addDevCommand } from "./commands/dev.ts";
import { addInstallsCommand } from "./commands/installs.ts";
import { addJobsCommand } from "./commands/jobs.ts";
import { addLogsCommand } from "./commands/logs.ts";
import { addProgramCommands } from "./commands/server.ts";
import { addSyncCommand } from "./commands/sync.ts";
import { addWhyCommand } from "./commands/why.ts";
import type { CliContext } from "./context.ts";
import { exitCodeOf, exitCodes } from "./exit-code.ts";
import { reportProblem } from "./problem-report.ts";

/** All commands, over one context. */
export function createProgram(context: CliContext): Command {
  const { terminal } = context;
  const program = new Command("landfall")
    .description("Run your product inside each of your customers' own cloud accounts.")
    .version(context.version)
    .showSuggestionAfterError()
    .showHelpAfterError("Add `--help` to see what is expected.")
    .configureOutput({
      writeOut: (text) => terminal.write(text),
      writeErr: (text) => terminal.note(text),
      getOutHelpWidth: () => Math.min(100, terminal.width()),
      getErrHelpWidth: () => Math.min(100, terminal.width()),
      getOutHasColors: () => terminal.colours,
      getErrHasColors: () => terminal.colours,
    });
  addDevCommand(program, context);
  addSyncCommand(program, context);
  addBuildsCommand(program, context);
  addInstallsCommand(program, context);
  addDeployCommand(program, context);
  addJobsCommand(program, context);
  addLogsCommand(program, context);
  addWhyCommand(program, context);
  addAgentsCommand(program, context);
  addProgramCommands(program, context);
  withExamples(program, [
    "dev",
    "sync examples/guestbook",
    "installs show demo",
    "logs -f demo/web",
    "why demo",
  ]);
  throwOnExit(program);
  return program;
}

/** Runs one command line to its end; never throws, and tells its exit code to the context. */
export async function runProgram(args: readonly string[], context: CliContext): Promise<void> {
  const program = createProgram(context);
  try {
    if (args.length === 0) return program.outputHelp();
    await program.parseAsync([...args], { from: "user" });
  } catch (error) {
    // Commander has written what there is to say.
    if (error instanceof CommanderError) {
      if (error.exitCode !== 0) context.exitWith(exitCodes.usage);
      return;
    }
    reportProblem(context.terminal, error, context.cwd);
    context.exitWith(exitCodeOf(error));
  }
}

/** Commander would end the process itself; only `bin/` may. */
function throwOnExit(command: Command): void {
  command.exitOverride();
  for (const inner of command.commands) throwOnExit(inner);
}
