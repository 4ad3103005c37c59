/** `landfall logs`: the lines of a job, and with `-f` those to come. */
import { setTimeout as delay } from "node:timers/promises";
import type { Command } from "commander";
import { Fault, isFault } from "../../model/fault.ts";
import { isId } from "../../model/ids.ts";
import type { ApiClient } from "../api-client.ts";
import {
  type ClientOptions,
  openClient,
  withExamples,
  withJson,
  withServerOptions,
} from "../command-options.ts";
import type { CliContext } from "../context.ts";
import { exitCodes } from "../exit-code.ts";
import { formatEvent } from "../job-report.ts";
import { paint } from "../terminal.ts";

type LogOptions = ClientOptions & { follow?: boolean };

const reconnectsMax = 20;
const reconnectPauseMs = 500;
const pageLimit = 200;

/** Adds the command. */
export function addLogsCommand(program: Command, context: CliContext): void {
  const command = program
    .command("logs")
    .description("print the log of a job, or of the newest job of a component")
    .argument("<what>", "a job's id, or INSTALL/COMPONENT")
    .option("-f, --follow", "go on until the job has ended");
  withExamples(withJson(withServerOptions(command)), [
    "logs JOB",
    "logs demo/web",
    "logs -f demo/web",
  ]);
  command.action(async (what: string, options: LogOptions) => {
    const client = await openClient(context, options);
    const failed = await printLog(context, client, await findJob(client, what), options);
    // With -f one waits for the job: its failure is the command's own.
    if (failed && options.follow) context.exitWith(exitCodes.failed);
  });
}

/** The job that was named, or the newest of a component. */
export async function findJob(client: ApiClient, what: string): Promise<string> {
  if (isId("job", what)) return what;
  const [install = "", component = "", ...rest] = what.split("/");
  if (install === "" || component === "" || rest.length > 0) {
    throw new Fault(
      "invalid",
      `Expected a job's id or INSTALL/COMPONENT, got \`${what}\`. See \`landfall jobs list\`.`,
    );
  }
  const view = await client.install(install);
  const known = view.components.find(({ name }) => name === component);
  if (known?.jobId) return known.jobId;
  const { jobs } = await client.jobs({ install, limit: pageLimit });
  const newest = jobs.find((job) => (job.component ?? "sandbox") === component);
  if (newest) return newest.id;
  const names = view.components.map(({ name }) => `\`${name}\``).join(", ");
  throw new Fault(
    "not_found",
    `Expected a component of \`${install}\` that had a job (${names}), got \`${component}\`.`,
  );
}

/** Prints what there is, and what comes; true when the job failed. A broken connection is taken up again. */
async function printLog(
  context: CliContext,
  client: ApiClient,
  id: string,
  { follow = false, json = false }: LogOptions,
): Promise<boolean> {
  const { terminal } = context;
  let after = 0;
  for (let reconnects = 0; ; ) {
    try {
      for await (const event of client.logs(id, { after, follow })) {
        after = event.seq;
        reconnects = 0;
        const line = formatEvent(event);
        if (json) terminal.write(`${JSON.stringify(event)}\n`);
        else if (line !== null) {
          const tone = event.type === "log" && event.stream !== "system" ? "plain" : "dim";
          terminal.write(`${paint(terminal.colours, tone, line)}\n`);
        }
        if (event.type === "outcome") return event.outcome.status === "failed";
      }
      if (!follow) return false;
      const { state } = await client.job(id);
      // The outcome can come without a line of its own, when the executor was lost.
      if (state === "failed" || state === "succeeded" || state === "cancelled")
        return state === "failed";
    } catch (error) {
      if (!follow || !isFault(error, "unavailable")) throw error;
      if (++reconnects > reconnectsMax) throw error;
    }
    await delay(reconnectPauseMs);
  }
}
