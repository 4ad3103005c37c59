/** `landfall jobs list|show|cancel`: every operation, its state and how it ended. */
import { type Command, InvalidArgumentError, Option } from "commander";
import { isFinished, type JobState, jobStates } from "../../model/job.ts";
import type { JobView } from "../../protocol/api.ts";
import type { ApiClient } from "../api-client.ts";
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
import { formatAge, formatDuration } from "../duration.ts";
import { type Cell, formatTable } from "../table.ts";
import type { Tone } from "../terminal.ts";

type ListOptions = ClientOptions & {
  install?: string;
  state?: JobState;
  limit: number;
  after?: string;
};

const limitDefault = 50;
const limitMax = 1000;

/** Adds the commands. */
export function addJobsCommand(program: Command, context: CliContext): void {
  const jobs = program.command("jobs").description("list, show and cancel jobs");
  withExamples(jobs, ["jobs list --install demo", "jobs show JOB", "jobs cancel JOB"]);
  addList(jobs, context);
  const show = jobs.command("show").description("show one job").argument("<job>", "the job's id");
  withExamples(withJson(withServerOptions(show)), ["jobs show JOB", "jobs show JOB --json"]);
  show.action(async (id: string, options: ClientOptions) => {
    const job = await (await openClient(context, options)).job(id);
    if (options.json) return printJson(context, job);
    printLines(context, describeJob(job, context.now()));
  });
  const cancel = jobs
    .command("cancel")
    .description("ask a job to stop; it is killed after a grace")
    .argument("<job>", "the job's id");
  withExamples(withJson(withServerOptions(cancel)), ["jobs cancel JOB"]);
  cancel.action(async (id: string, options: ClientOptions) => {
    const job = await (await openClient(context, options)).cancelJob(id);
    if (options.json) return printJson(context, job);
    printLines(context, [`Job ${job.id} ${describeCancel(job)}.`]);
  });
}

/** A queued job has ended at once; others end when their agent says so, however long that is away. */
function describeCancel(job: JobView): string {
  if (isFinished(job.state)) return `is ${job.state}`;
  return job.state === "unreachable"
    ? `is to stop: its agent is away, and ends it when it is back. See \`landfall why ${job.id}\``
    : "was asked to stop";
}

function addList(jobs: Command, context: CliContext): void {
  const list = jobs
    .command("list", { isDefault: true })
    .description("list jobs, newest first")
    .option("--install <name>", "of this install only")
    .addOption(new Option("--state <state>", "in this state only").choices(jobStates))
    .option("--limit <n>", "at most so many", parseLimit, limitDefault)
    .option("--after <job>", "older than this one, to page on");
  withExamples(withJson(withServerOptions(list)), [
    "jobs list",
    "jobs list --install demo --state failed",
    "jobs list --json --limit 200",
  ]);
  list.action(async (options: ListOptions) => {
    const client = await openClient(context, options);
    const page = await listJobs(client, options);
    if (options.json) return printJson(context, page);
    const { terminal } = context;
    const lines = formatTable(
      ["job", "operation", "component", "install", "state", "took", "age"],
      page.jobs.map((job) => jobRow(job, context.now())),
      { width: terminal.width(), colours: terminal.colours },
    );
    const more = page.next === null ? [] : [`More: landfall jobs list --after ${page.next}`];
    printLines(context, [...lines, ...more]);
  });
}

function listJobs(client: ApiClient, { install, state, limit, after }: ListOptions) {
  return client.jobs({ install, state, limit, after });
}

/** The tone of a job's state. */
export function toneOfJob(state: JobState): Tone {
  if (state === "succeeded") return "good";
  if (state === "failed" || state === "unreachable") return "bad";
  return isFinished(state) ? "dim" : "busy";
}

function jobRow(job: JobView, now: Date): Cell[] {
  return [
    job.id,
    job.operation,
    job.component ?? "(sandbox)",
    job.install ?? "–",
    { text: job.state, tone: toneOfJob(job.state) },
    tookOf(job, now),
    formatAge(job.createdAt, now),
  ];
}

function describeJob(job: JobView, now: Date): string[] {
  const facts: [string, string | null][] = [
    ["job", job.id],
    ["operation", job.operation],
    ["app", job.app],
    ["install", job.install],
    ["component", job.component],
    ["state", job.state],
    ["epoch", job.epoch],
    ["agent", job.agentId],
    ["manifest", job.manifestDigest],
    ["created", `${job.createdAt} (${formatAge(job.createdAt, now)})`],
    ["cancel", job.cancelRequestedAt && `asked for at ${job.cancelRequestedAt}`],
    ["took", job.startedAt === null ? null : tookOf(job, now)],
    ["code", job.outcome?.code ?? null],
    ["message", job.outcome?.message ?? null],
    ["artifact", job.outcome?.artifact?.digest ?? null],
    ["plan", job.outcome?.plan?.planDigest ?? null],
  ];
  const lines = facts.flatMap(([name, value]) =>
    value === null ? [] : [`${name.padEnd(10)} ${value}`],
  );
  const diff = job.outcome?.plan?.diff.trimEnd();
  return diff ? [...lines, "", ...diff.split("\n")] : lines;
}

function tookOf(job: JobView, now: Date): string {
  if (job.startedAt === null) return "–";
  const end = job.finishedAt === null ? now.getTime() : Date.parse(job.finishedAt);
  return formatDuration(end - Date.parse(job.startedAt));
}

function parseLimit(text: string): number {
  const limit = Number(text);
  if (Number.isInteger(limit) && limit >= 1 && limit <= limitMax) return limit;
  throw new InvalidArgumentError(`Expected a whole number from 1 to ${limitMax}.`);
}
