/**
 * A server that was restored from an older back-up: its memory went back in time, the installs did not.
 *
 *   noticed ──> every install with an agent is held, generations rise ──> its agent says hello
 *      ──> recall: the agent tells what ended and what runs, with the signed manifests
 *      ──> what the server did not know is put back as it was ──> the hold ends;
 *          the install stays paused if anything was put back that the server had never heard of
 *
 * Invariant: nothing is offered to an install before its agent has told its part, so nothing runs
 * twice; and nothing is reconciled towards an older release behind a person's back.
 */
import { compareEpochs } from "../model/job.ts";
import type { Checkpoint, JournalEntry } from "../protocol/frames.ts";
import type { ServerContext } from "./context.ts";
import type { Sql } from "./database.ts";
import { judgeCheckpoint } from "./history.ts";
import { raiseQueuedBuilds } from "./job-machine.ts";

/** What an agent's hello says that bears on the server's memory. */
export interface Remembered {
  readonly agentId: string;
  readonly journal: readonly JournalEntry[];
  readonly checkpoint: Checkpoint | null;
}

/**
 * Compares what an agent remembers with what the server knows. True when the agent must be asked to
 * tell its part; the first agent that notices a restore holds all installs.
 */
export async function mustRecall(context: ServerContext, remembered: Remembered): Promise<boolean> {
  const { database } = context;
  const { agentId, checkpoint } = remembered;
  const [standing] = await database.query<Standing>(
    `select agents.restore as told, coalesce((select max(number) from restores), 0) as newest,
            installs.id as install_id, installs.recall_since is not null as held
     from agents left join installs on installs.id = agents.install_id where agents.id = $1`,
    [agentId],
  );
  if (!standing) return false;
  const verdict = checkpoint ? await judgeCheckpoint(context, checkpoint) : "known";
  if (verdict === "forged") context.log.warn({ agentId }, "An agent brought a forged checkpoint");
  // An agent that has not told its part of the newest restore yet remembers what that one took away.
  if (verdict === "lost" && standing.told === standing.newest) {
    const found = `${agentId} remembers event ${checkpoint?.position}, which the database does not tell.`;
    await declareRestored(context, "server", found, standing.newest);
  }
  if (verdict === "lost" || standing.held) return true;
  if (!(await knowsMore(database, remembered))) return false;
  // An agent's word alone holds nothing but its own install.
  await holdOne(context, standing.install_id);
  return true;
}

interface Standing {
  readonly told: number;
  readonly newest: number;
  readonly install_id: string | null;
  readonly held: boolean;
}

/** The number of the newest restore, 0 when there was none. */
export async function newestRestore(sql: Sql): Promise<number> {
  const [row] = await sql.query<{ number: number }>(
    "select coalesce(max(number), 0) as number from restores",
  );
  return row?.number ?? 0;
}

/**
 * Holds every install until its agent has told its part, and begins a new generation everywhere.
 * `newest` is the last restore that the caller knew of: of two that notice at once, one declares it.
 */
export async function declareRestored(
  context: ServerContext,
  actor: string,
  found: string,
  newest: number,
): Promise<void> {
  await context.database.transaction(actor, async (sql) => {
    await sql.query("lock table restores in exclusive mode");
    if ((await newestRestore(sql)) !== newest) return;
    await sql.query("insert into restores (number, found) values ($1, $2)", [newest + 1, found]);
    await sql.query(
      `update installs set recall_since = clock_timestamp(), generation = generation + 1
       where state <> 'deleted' and exists (
         select 1 from agents where agents.install_id = installs.id and revoked_at is null)`,
    );
    await raiseQueuedBuilds(sql);
    context.log.warn({ found }, "The server was restored from an older back-up; installs are held");
  });
  context.wake.notify("live");
}

async function holdOne(context: ServerContext, installId: string | null): Promise<void> {
  await context.database.transaction("server", (sql) =>
    sql.query(
      `update installs set recall_since = clock_timestamp(), generation = generation + 1
       where id = $1 and recall_since is null`,
      [installId],
    ),
  );
}

/** True when the agent has a try that the server should know of, and does not. */
async function knowsMore(sql: Sql, { journal }: Remembered): Promise<boolean> {
  if (journal.length === 0) return false;
  const rows = await sql.query<{ id: string; generation: number; n: number }>(
    "select id, generation, n from jobs where id = any($1)",
    [journal.map(({ jobId }) => jobId)],
  );
  const known = new Map(rows.map((row) => [row.id, row]));
  return journal.some(({ jobId, epoch }) => {
    const row = known.get(jobId);
    return row === undefined || compareEpochs(epoch, row) > 0;
  });
}

/** A back-up may be older than a replaced agent: generations go on from the newest that anyone has seen. */
export async function raiseGeneration(
  sql: Sql,
  agentId: string,
  generation: number,
): Promise<void> {
  await sql.query(
    `update installs set generation = $2 + 1 from agents
     where agents.id = $1 and installs.id = agents.install_id and installs.generation <= $2`,
    [agentId, generation],
  );
}
