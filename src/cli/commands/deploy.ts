/** `landfall deploy`: moves an install to a release, and tries again what had failed. */
import { type Command, InvalidArgumentError } from "commander";
import {
  type ClientOptions,
  openClient,
  withExamples,
  withJson,
  withServerOptions,
} from "../command-options.ts";
import type { CliContext } from "../context.ts";
import { followInstall } from "../install-follow.ts";

type DeployOptions = ClientOptions & { release?: number; wait: boolean };

/** Adds the command. */
export function addDeployCommand(program: Command, context: CliContext): void {
  const command = program
    .command("deploy")
    .description("deploy a release to an install: the newest, unless one is named")
    .argument("<install>", "the install's name")
    .option("--release <n>", "this release", parseRelease)
    .option("--no-wait", "do not wait until it is deployed");
  withExamples(withJson(withServerOptions(command)), ["deploy demo", "deploy demo --release 3"]);
  command.action(async (name: string, options: DeployOptions) => {
    const client = await openClient(context, options);
    const install = await client.deploy(name, options.release);
    const done = `is at release ${install.releaseNumber ?? "–"}`;
    await followInstall(context, client, install, { ...options, done });
  });
}

function parseRelease(text: string): number {
  const release = Number(text);
  if (Number.isInteger(release) && release >= 1) return release;
  throw new InvalidArgumentError("Expected a release's number, such as 3.");
}
