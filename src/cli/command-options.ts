/** Options that many commands share, and the client that they make. */
import type { Command } from "commander";
import { type ApiClient, createApiClient } from "./api-client.ts";
import type { CliContext } from "./context.ts";
import { findProfile, type ProfileOptions } from "./profile.ts";

export interface ClientOptions extends ProfileOptions {
  readonly json?: boolean;
}

/** Adds `--server`, `--token-file` and `--data`. */
export function withServerOptions(command: Command): Command {
  return command
    .option("--server <url>", "the server's address (default: that of the nearest `.landfall/`)")
    .option("--token-file <file>", "a file that holds the token for that server")
    .option("--data <dir>", "the data folder of `landfall dev` to take address and token from");
}

/** Adds `--json`: the answer as JSON on standard output, and nothing else there. */
export function withJson(command: Command): Command {
  return command.option("--json", "print JSON for programs to read");
}

/** The client of the server that the options name. */
export async function openClient(context: CliContext, options: ProfileOptions): Promise<ApiClient> {
  return createApiClient(await findProfile(options, context.cwd));
}

/** Examples at the end of a command's help; every command has some. */
export function withExamples(command: Command, examples: readonly string[]): Command {
  const lines = examples.map((example) => `  $ landfall ${example}`);
  return command.addHelpText("after", `\nExamples:\n${lines.join("\n")}\n`);
}

/** Prints a value for programs. */
export function printJson(context: CliContext, value: unknown): void {
  context.terminal.write(`${JSON.stringify(value, null, 2)}\n`);
}

/** Prints lines for people. */
export function printLines(context: CliContext, lines: readonly string[]): void {
  context.terminal.write(lines.map((line) => `${line}\n`).join(""));
}
