/**
 * The desk where the reports of all connections are taken together: that a job runs, its lines, its end.
 * A batch is one look at the jobs, one page of lines (`log-pages.ts`) and one transaction.
 *
 *   report --> held, follows what is stored --> page --> transaction: started, rows of lines, ended, settled
 *         \--> anything else (stale, repeated, a hole, large, a number taken meanwhile) --> by itself
 *
 * Invariants: every guard is that of one report (`reports.ts`, `job-machine.ts`); lines are stored before
 * the outcome that follows them counts; nobody is answered before the commit. Commits always wait for the
 * disk, even those of mere starts: a checkpoint in some agent's hands may be of an event among them.
 */
import { isFault } from "../../model/fault.ts";
import type { AgentId, JobId } from "../../model/ids.ts";
import { compareEpochs, type Epoch } from "../../model/job.ts";
import type { JobEvent } from "../../protocol/events.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import type { ServerContext } from "../context.ts";
import type { Sql } from "../database.ts";
import { type FinishedJob, type HeldJob, startJobs } from "../job-machine.ts";
import { freshStretch, type Stretch } from "../log-chunks.ts";
import { insertChunks, type PagedChunk, writePages } from "../log-pages.ts";
import { takeOutcomes, wakeAll } from "../outcomes.ts";
import { alone, createGathering } from "./gathering.ts";
import {
  type Handled,
  handleReport,
  noteProgress,
  nothing,
  outcomeOf,
  type Report,
  type ReportOf,
} from "./reports.ts";

export interface ReportDesk {
  /** Takes a report; what it resolves with is committed. */
  take(agentId: AgentId, frame: Report): Promise<Handled>;
}

/** A report that may be taken together with others. */
interface Item {
  readonly agentId: AgentId;
  readonly frame: ReportOf<"accepted"> | ReportOf<"events">;
}

interface Lines {
  readonly item: Item;
  readonly key: JobKey;
  readonly stretch: Stretch;
}

const batchMax = 400;
/** A row that someone else holds for longer must not keep all others waiting. */
const lockWaitMs = 1000;

/** The desk of one gateway. */
export function createReportDesk(context: ServerContext): ReportDesk {
  const gathering = createGathering<Item, Handled>({
    log: context.log,
    batchMax,
    // That a job runs may be taken together with its end: a batch starts before it ends.
    keyOf: ({ frame }) => `${frame.type} ${frame.jobId}`,
    handle: (items) => handleTogether(context, items),
    handleAlone: ({ agentId, frame }) => handleReport(context, agentId, frame),
  });
  return {
    take(agentId, frame) {
      if (frame.type === "accepted" || frame.type === "events") {
        return gathering.add({ agentId, frame });
      }
      return handleReport(context, agentId, frame);
    },
  };
}

async function handleTogether(
  context: ServerContext,
  items: readonly Item[],
): Promise<(Handled | typeof alone)[]> {
  const started = items.filter(({ frame }) => frame.type === "accepted").map(heldOf);
  const lines = await findLines(context, items);
  const chunks = await writePages(context, lines);
  const { stored, ended } = await context.database.transaction("agents", (sql) =>
    record(context, sql, { started, lines, chunks }),
  );
  if (started.length > 0) context.wake.notify("live");
  for (const { item, key } of lines.filter((each) => stored.has(each.key.jobId))) {
    if (item.frame.type === "events") noteProgress(context, key, item.frame.events);
    context.wake.notify(`log:${key.jobId}`);
  }
  wakeAll(context, ended);
  const byItem = new Map(lines.map((each) => [each.item, each]));
  return items.map((item) => {
    if (item.frame.type === "accepted") return nothing;
    const told = byItem.get(item);
    return told && stored.has(told.key.jobId) ? answerTo(told) : alone;
  });
}

async function record(
  context: ServerContext,
  sql: Sql,
  found: {
    started: readonly HeldJob[];
    lines: readonly Lines[];
    chunks: readonly PagedChunk[];
  },
): Promise<{ stored: ReadonlySet<JobId>; ended: readonly JobId[] }> {
  const [, , stored] = await Promise.all([
    sql.query("select set_config('lock_timeout', $1, true)", [`${lockWaitMs}ms`]),
    found.started.length > 0 ? startJobs(sql, found.started) : null,
    insertChunks(sql, found.chunks),
  ]);
  const finished = found.lines.flatMap(({ item, key, stretch }): FinishedJob[] => {
    const outcome = stored.has(key.jobId) && outcomeOf(stretch.events, stretch.lastSeq);
    return outcome ? [{ ...key, agentId: item.agentId, outcome }] : [];
  });
  const ended = finished.length > 0 ? await takeOutcomes(context, sql, finished) : [];
  return { stored, ended };
}

/** Lines that their agent may add to its job now; all others are looked at by themselves. */
async function findLines(context: ServerContext, items: readonly Item[]): Promise<Lines[]> {
  const told = items.filter(({ frame }) => frame.type === "events");
  if (told.length === 0) return [];
  const standings = await readStandings(context.database, told.map(heldOf));
  return told.flatMap((item, index): Lines[] => {
    const { agentId, frame } = item;
    const standing = standings[index];
    if (frame.type !== "events" || standing?.agent_id !== agentId) return [];
    if (standing.ended || compareEpochs(standing, frame.epoch) !== 0) return [];
    const key = { jobId: frame.jobId, epoch: frame.epoch };
    const stretch = stretchOf(key, frame.events, standing.last_seq);
    return stretch ? [{ item, key, stretch }] : [];
  });
}

/** Null also for a hole: it is refused where it is handled by itself. */
function stretchOf(key: JobKey, events: readonly JobEvent[], last: number): Stretch | null {
  try {
    return freshStretch(key, events, last);
  } catch (error) {
    if (isFault(error)) return null;
    throw error;
  }
}

interface Standing extends Epoch {
  readonly agent_id: string | null;
  readonly ended: boolean;
  readonly last_seq: number;
}

/** Who holds each job, and the number of the last stored event of the try that is told of. */
function readStandings(sql: Sql, held: readonly HeldJob[]): Promise<Standing[]> {
  return sql.query<Standing>(
    `select jobs.agent_id, jobs.generation, jobs.n, outcome is not null as ended,
            coalesce((select last_seq from log_chunks
                      where job_id = told.id and generation = told.generation and n = told.n
                      order by first_seq desc limit 1), 0) as last_seq
     from unnest($1::text[], $2::int[], $3::int[]) with ordinality as told (id, generation, n, number)
     left join jobs on jobs.id = told.id
     order by told.number`,
    [
      held.map((job) => job.jobId),
      held.map((job) => job.epoch.generation),
      held.map((job) => job.epoch.n),
    ],
  );
}

function heldOf({ agentId, frame }: Item): HeldJob {
  return { agentId, jobId: frame.jobId, epoch: frame.epoch };
}

function answerTo({ key, stretch }: Lines): Handled {
  const outcome = outcomeOf(stretch.events, stretch.lastSeq);
  const ack = { ...key, acknowledged: stretch.lastSeq };
  return { ...nothing, ack, ended: outcome ? key : null };
}
