/**
 * What an agent tells after the server was restored from an older back-up: every try that ended or still
 * runs, with the manifest that this server signed. What the server did not know is put back as it was.
 *
 * Invariant: only a manifest with this server's signature, for this agent's install, is believed; an end
 * that the server knows is never changed.
 */
import type { AgentId, JobId } from "../model/ids.ts";
import { compareEpochs, type Epoch, type Outcome } from "../model/job.ts";
import { policyOf } from "../model/job-policy.ts";
import { Manifest } from "../protocol/documents.ts";
import { decodePublicKey, verifyDocument } from "../protocol/signed-document.ts";
import type { ServerContext } from "./context.ts";
import type { Sql } from "./database.ts";
import { recordEvent } from "./event-queue.ts";
import { cancelNoted, dropQueued, queueJobs, recallJob, resumeStarts } from "./job-machine.ts";
import { newJobOf } from "./manifest.ts";
import { settleEnded } from "./outcomes.ts";
import { newestRestore, raiseGeneration } from "./restore.ts";

/** One try as the agent tells it. */
export interface ToldTry {
  readonly manifest: string;
  readonly epoch: Epoch;
  readonly outcome: Outcome | null;
}

export interface Teller {
  readonly id: AgentId;
  readonly install_id: string | null;
  /** The newest generation that it launched anything of. */
  readonly generationSeen: number;
}

interface VerifiedTry extends ToldTry {
  readonly content: Manifest;
  readonly digest: string;
}

/** Puts back all that an agent told, ends the hold of its install, and gives how many jobs were unknown. */
export async function takeRecalled(
  context: ServerContext,
  agent: Teller,
  told: readonly ToldTry[],
): Promise<number> {
  const tries = newestOfEach(await verifyAll(context, agent, told));
  const unknown = await context.database.transaction(`agent:${agent.id}`, async (sql) => {
    let count = 0;
    for (const each of tries) count += await putBack(context, sql, agent, each);
    await raiseGeneration(sql, agent.id, agent.generationSeen);
    if (agent.install_id !== null) await endHold(sql, agent.install_id, count);
    await sql.query("update agents set restore = $2 where id = $1", [
      agent.id,
      await newestRestore(sql),
    ]);
    await recordEvent(sql, {
      kind: "agent.recalled",
      actor: `agent:${agent.id}`,
      installId: agent.install_id,
      data: { told: told.length, unknown: count },
    });
    return count;
  });
  context.wake.notify("reconcile");
  context.wake.notify("live");
  return unknown;
}

/** An agent that speaks an older protocol cannot tell: a person decides when its install goes on. */
export async function holdWithoutRecall(
  context: ServerContext,
  { id, install_id }: Pick<Teller, "id" | "install_id">,
): Promise<void> {
  await context.database.transaction("server", async (sql) => {
    await sql.query(
      `update installs set recall_since = null, paused_at = coalesce(paused_at, clock_timestamp()),
         paused_by = 'server', pause_reason = $2 where id = $1 and recall_since is not null`,
      [
        install_id,
        "The server was restored from a back-up, and this install's agent is too old to tell what was done " +
          "since. Compare what runs there with the release, upgrade the agent, then resume.",
      ],
    );
    await sql.query("update agents set restore = $2 where id = $1", [id, await newestRestore(sql)]);
  });
}

async function verifyAll(
  context: ServerContext,
  agent: Teller,
  told: readonly ToldTry[],
): Promise<VerifiedTry[]> {
  const { publicKeys } = context.keys;
  const findKey = (keyId: string) => {
    const key = Object.hasOwn(publicKeys, keyId) ? publicKeys[keyId] : undefined;
    return key === undefined ? null : decodePublicKey(key);
  };
  const verified: VerifiedTry[] = [];
  for (const each of told) {
    const { payload, digest } = await verifyDocument(
      "landfall-manifest",
      Manifest,
      each.manifest,
      findKey,
    );
    const isOwn = agent.install_id === null || payload.install?.id === agent.install_id;
    if (isOwn) verified.push({ ...each, content: payload, digest });
  }
  return verified;
}

/** Of each job its newest try alone counts; the order stays. */
function newestOfEach(tries: readonly VerifiedTry[]): VerifiedTry[] {
  const newest = new Map<JobId, VerifiedTry>();
  for (const each of tries) {
    const known = newest.get(each.content.jobId);
    if (!known || compareEpochs(each.epoch, known.epoch) > 0) newest.set(each.content.jobId, each);
  }
  return tries.filter((each) => newest.get(each.content.jobId) === each);
}

/** 1 when the server had never heard of the job. */
async function putBack(
  context: ServerContext,
  sql: Sql,
  agent: Teller,
  { content, digest, manifest, epoch, outcome }: VerifiedTry,
): Promise<number> {
  const key = { jobId: content.jobId, epoch };
  const [known] = await sql.query("select 1 from jobs where id = $1", [content.jobId]);
  if (!known && !(await insertUnknown(sql, content, manifest, digest, epoch))) return 1;
  if (await recallJob(sql, agent.id, { key, outcome })) {
    await settleEnded(context, sql, content.jobId);
  }
  return known ? 0 : 1;
}

/** False when the app itself is unknown, so that its job has no place to be put back to. */
async function insertUnknown(
  sql: Sql,
  content: Manifest,
  manifest: string,
  digest: string,
  epoch: Epoch,
): Promise<boolean> {
  const [app] = await sql.query("select 1 from apps where id = $1", [content.app.id]);
  if (!app || !content.install) return false;
  // At most one unfinished job per component: what is queued was made without knowing of this one.
  await dropQueued(
    sql,
    content.install.id,
    content.component?.name ?? null,
    "The server was restored from a back-up; another job of this component had run since.",
  );
  const policy = { limits: content.limits, retry: content.retry };
  const { limits, retry } = { ...policyOf(content.operation), ...dropUndefined(policy) };
  const job = newJobOf(content, { document: manifest, digest, limits, retry });
  // Deploy 0: which deploy it was for is what the back-up did not know.
  await queueJobs(sql, [{ ...job, deploy: 0, generation: epoch.generation }]);
  return true;
}

function dropUndefined<T extends object>(value: T): Partial<T> {
  const entries = Object.entries(value).filter(([, each]) => each !== undefined);
  return Object.fromEntries(entries) as Partial<T>;
}

/** Where jobs had run that the server had never heard of, what it desires may be older than what runs. */
async function endHold(sql: Sql, installId: string, unknown: number): Promise<void> {
  await resumeStarts(sql, installId, "recall_since");
  await sql.query(
    "update installs set recall_since = null, reconcile_due_at = clock_timestamp() where id = $1",
    [installId],
  );
  await cancelNoted(sql, installId);
  if (unknown === 0) return;
  await dropQueued(
    sql,
    installId,
    null,
    "The server was restored from a back-up; what this job was made for may be out of date.",
  );
  await sql.query(
    `update installs set paused_at = coalesce(paused_at, clock_timestamp()), paused_by = 'server',
       pause_reason = $2 where id = $1`,
    [
      installId,
      `The server was restored from a back-up; ${unknown} jobs had run here since it was made. Sync the app ` +
        "and deploy what should run here, then resume: nothing is rolled back before that.",
    ],
  );
}
