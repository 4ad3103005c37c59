/** `landfall installs pause|resume|limit|conflicts`: what people hold back, with a reason that everyone sees. */
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
import { formatAge } from "../duration.ts";
import { formatTable } from "../table.ts";

const jobsLimitMax = 1000;

/** Adds the commands. */
export function addHoldCommands(installs: Command, context: CliContext): void {
  addPause(installs, context);
  addResume(installs, context);
  addLimit(installs, context);
  addConflicts(installs, context);
}

function addConflicts(installs: Command, context: CliContext): void {
  const command = installs
    .command("conflicts")
    .description("list what older tries of jobs were refused to write into the install's store")
    .argument("<name>", "the install's name")
    .option("--dismiss <key>", "say that you have looked at this one; it stays in the store");
  withExamples(withJson(withServerOptions(command)), [
    "installs conflicts acme",
    "installs conflicts acme --dismiss conflicts/state/web/job_01….1.1/1",
  ]);
  command.action(async (name: string, options: ClientOptions & { dismiss?: string }) => {
    const client = await openClient(context, options);
    const install =
      options.dismiss === undefined
        ? await client.install(name)
        : await client.dismissConflict(name, options.dismiss);
    if (options.json) return printJson(context, { conflicts: install.conflicts });
    if (install.conflicts.length === 0) return printLines(context, ["No conflicts."]);
    const rows = install.conflicts.map(({ component, key, since }) => [
      component,
      formatAge(since, context.now()),
      key,
    ]);
    const { terminal } = context;
    printLines(
      context,
      formatTable(["component", "since", "kept in the install's store as"], rows, {
        width: terminal.width(),
        colours: terminal.colours,
      }),
    );
  });
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
