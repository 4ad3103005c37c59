/** `landfall installs pause|resume|limit`: what people hold back, with a reason that everyone sees. */
import { type Command, InvalidArgumentError } from "commander";
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

const jobsLimitMax = 1000;

/** Adds the commands. */
export function addHoldCommands(installs: Command, context: CliContext): void {
  addPause(installs, context);
  addResume(installs, context);
  addLimit(installs, context);
}

function addPause(installs: Command, context: CliContext): void {
  const pause = installs
    .command("pause")
    .description("hold an install: no job is made or begun; jobs under way finish")
    .argument("<name>", "the install's name")
    .requiredOption("--reason <text>", "why, for everyone to see; again, to change it");
  withExamples(withJson(withServerOptions(pause)), [
    'installs pause acme --reason "their audit, until Friday"',
  ]);
  pause.action(async (name: string, options: ClientOptions & { reason: string }) => {
    const install = await (await openClient(context, options)).pauseInstall(name, options.reason);
    if (options.json) return printJson(context, install);
    const running = install.agent?.jobs ?? 0;
    const jobs = running === 0 ? "" : ` ${running} of its jobs are under way and finish.`;
    printLines(context, [
      `\`${name}\` is paused.${jobs} It goes on with \`landfall installs resume ${name}\`.`,
    ]);
  });
}

function addResume(installs: Command, context: CliContext): void {
  const resume = installs
    .command("resume")
    .description("let a paused install go on; the time of the pause counts against no job")
    .argument("<name>", "the install's name");
  withExamples(withJson(withServerOptions(resume)), ["installs resume acme"]);
  resume.action(async (name: string, options: ClientOptions) => {
    const install = await (await openClient(context, options)).resumeInstall(name);
    if (options.json) return printJson(context, install);
    printLines(context, [`\`${name}\` goes on. See \`landfall why ${name}\`.`]);
  });
}

function addLimit(installs: Command, context: CliContext): void {
  const limit = installs
    .command("limit")
    .description("limit how many jobs of an install are under way at once")
    .argument("<name>", "the install's name")
    .requiredOption("--jobs <n>", "so many; `none`: as many as its agent has slots", parseJobs);
  withExamples(withJson(withServerOptions(limit)), [
    "installs limit acme --jobs 2",
    "installs limit acme --jobs none",
  ]);
  limit.action(async (name: string, options: ClientOptions & { jobs: number | "none" }) => {
    const jobsMax = options.jobs === "none" ? null : options.jobs;
    const install = await (await openClient(context, options)).limitInstall(name, jobsMax);
    if (options.json) return printJson(context, install);
    const what = jobsMax === null ? "as many as its agent has slots" : `at most ${jobsMax}`;
    printLines(context, [`\`${name}\` runs ${what} at once.`]);
  });
}

function parseJobs(text: string): number | "none" {
  if (text === "none") return text;
  const jobs = Number(text);
  if (Number.isInteger(jobs) && jobs >= 1 && jobs <= jobsLimitMax) return jobs;
  throw new InvalidArgumentError(
    `Expected a whole number from 1 to ${jobsLimitMax}, or \`none\`. To begin no job at all: \`landfall installs pause\`.`,
  );
}
