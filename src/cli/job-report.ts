/** What a person is shown of a job that failed: its reason and the end of its log. */
import type { JobView } from "../protocol/api.ts";
import type { JobEvent } from "../protocol/events.ts";
import type { ApiClient } from "./api-client.ts";

const tailLines = 20;

/** One event as a line of a log; null for those that are no line. */
export function formatEvent(event: JobEvent): string | null {
  if (event.type === "log") return event.line;
  if (event.type === "progress") return null;
  if (event.type === "gap") {
    return `— lines ${event.seq} to ${event.last} are missing: ${event.reason}`;
  }
  const { status, code, message } = event.outcome;
  const what = code === undefined || code === status ? status : `${status} (${code})`;
  return message === undefined ? `— ${what}` : `— ${what}: ${message}`;
}

/** `apply of web in demo`: a job as people call it. */
export function nameJob(job: Pick<JobView, "operation" | "component" | "install">): string {
  const what = `${job.operation} of ${job.component ?? "the sandbox"}`;
  return job.install === null ? what : `${what} in ${job.install}`;
}

/** The lines to show of a failed job: name, reason, the end of its log, where the rest is. */
export async function reportJob(client: ApiClient, id: string): Promise<string[]> {
  const job = await client.job(id);
  const tail: string[] = [];
  for await (const event of client.logs(id)) {
    const line = formatEvent(event);
    if (line !== null) tail.push(line);
    if (tail.length > tailLines) tail.shift();
  }
  return [
    `${nameJob(job)}: ${job.outcome?.message ?? job.outcome?.code ?? job.state}`,
    ...tail.map((line) => `  │ ${line}`),
    `  └ all of it: landfall logs ${id}`,
  ];
}
