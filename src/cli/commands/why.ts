/** `landfall why`: what a job, a component, a deploy or an install waits for, and what would help. */
import { type Command, InvalidArgumentError } from "commander";
import { Fault } from "../../model/fault.ts";
import { isId } from "../../model/ids.ts";
import {
  type ClientOptions,
  openClient,
  printJson,
  printLines,
  withExamples,
  withJson,
  withServerOptions,
} from "../command-options.ts";
import type { CliContext } from "../context.ts";
import { renderWhy } from "../why-tree.ts";

type WhyOptions = ClientOptions & { deploy?: true | number };

/** Adds the command. */
export function addWhyCommand(program: Command, context: CliContext): void {
  const command = program
    .command("why")
    .description("say why something is where it is, what it waits for, and what would unblock it")
    .argument("<what>", "a job's id, INSTALL, or INSTALL/COMPONENT")
    .option("--deploy [n]", "of an install: its current deploy, or deploy N", parseDeploy);
  withExamples(withJson(withServerOptions(command)), [
    "why demo",
    "why demo/web",
    "why demo --deploy",
    "why JOB --json",
  ]);
  command.action(async (what: string, options: WhyOptions) => {
    const topic = readTopic(what, options);
    const client = await openClient(context, options);
    const why = await ("jobId" in topic
      ? client.whyJob(topic.jobId)
      : client.whyInstall(topic.install, topic));
    if (options.json) return printJson(context, why);
    printLines(context, renderWhy(why, context.terminal.colours));
  });
}

type Topic =
  | { readonly jobId: string }
  | {
      readonly install: string;
      readonly component?: string | undefined;
      readonly deploy?: number | "current" | undefined;
    };

function readTopic(what: string, { deploy }: WhyOptions): Topic {
  const [install = "", component, ...rest] = what.split("/");
  const isJob = isId("job", what);
  if (deploy !== undefined && (component !== undefined || isJob)) {
    throw new Fault("invalid", `Expected an install with \`--deploy\`, got \`${what}\`.`);
  }
  if (install === "" || component === "" || rest.length > 0) {
    throw new Fault(
      "invalid",
      `Expected a job's id, INSTALL or INSTALL/COMPONENT, got \`${what}\`. See \`landfall jobs list\` and \`landfall installs list\`.`,
    );
  }
  if (isJob) return { jobId: what };
  return { install, component, deploy: deploy === true ? "current" : deploy };
}

function parseDeploy(text: string): number {
  const number = Number(text);
  if (Number.isInteger(number) && number >= 1) return number;
  throw new InvalidArgumentError("Expected a deploy's number, such as 3.");
}
