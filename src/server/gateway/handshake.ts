/**
 * The handshake: the agent proves that it holds the key it enrolled with, and learns what to keep and
 * what to forget of the jobs it still knows.
 */
import { verify } from "node:crypto";
import type { AgentId } from "../../model/ids.ts";
import { judgeJournal } from "../../model/journal-rules.ts";
import type { Manifest } from "../../protocol/documents.ts";
import {
  type Hello,
  helloText,
  type JournalEntry,
  protocolVersions,
} from "../../protocol/frames.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import { decodePublicKey } from "../../protocol/signed-document.ts";
import type { ServerContext } from "../context.ts";
import type { Sql } from "../database.ts";
import { recordEvent } from "../event-queue.ts";
import { adoptJob, renewLeases } from "../job-machine.ts";
import { settleNoTrace } from "../jobs.ts";
import { lastStored } from "../log-chunks.ts";
import { readManifest } from "../manifest.ts";

export interface KnownAgent {
  readonly id: AgentId;
  readonly role: "build" | "install";
  readonly install_id: string | null;
  readonly public_key: string;
  readonly generation: number;
}

/** A job that both sides know: it goes on, with the same lease and the same epoch. */
export interface KeptJob {
  readonly key: JobKey;
  readonly manifest: Manifest;
  /** Up to where its events are safe. */
  readonly acknowledged: number;
}

interface HeldRow {
  id: JobKey["jobId"];
  generation: number;
  n: number;
  manifest: string;
  revoked: boolean;
}

/** The agent behind a hello, or why it is refused. A refusal is an event. */
export async function verifyHello(
  context: ServerContext,
  hello: Hello,
  nonce: string,
): Promise<KnownAgent | { refusal: string }> {
  const [agent] = await context.database.query<KnownAgent & { revoked: boolean }>(
    `select id, role, install_id, public_key, generation, revoked_at is not null as revoked
     from agents where id = $1`,
    [hello.agentId],
  );
  const refusal = refusalOf(context, hello, nonce, agent);
  if (agent && !refusal) return agent;
  const reason = refusal ?? "";
  await recordEvent(context.database, {
    kind: "agent.refused",
    actor: `agent:${hello.agentId}`,
    installId: agent?.install_id ?? null,
    data: { agent: hello.agentId, reason },
  });
  return { refusal: reason };
}

function refusalOf(
  context: ServerContext,
  hello: Hello,
  nonce: string,
  agent: (KnownAgent & { revoked: boolean }) | undefined,
): string | null {
  if (!(protocolVersions as readonly number[]).includes(hello.protocol)) {
    return `Expected protocol version ${protocolVersions.join(" or ")}, got ${hello.protocol}. Update the agent.`;
  }
  if (!agent)
    return "Expected an enrolled agent, but this one is not known. Enrol it with a new code.";
  if (agent.revoked)
    return "This agent has been revoked. Enrol a new one if the install shall go on.";
  const { agentNonce, agentId } = hello;
  const text = helloText({ rootKeyId: context.keys.rootKeyId, nonce, agentNonce, agentId });
  const key = decodePublicKey(agent.public_key);
  const isProved = verify(null, Buffer.from(text), key, Buffer.from(hello.signature, "base64url"));
  return isProved
    ? null
    : "Expected a signature by the key that this agent enrolled with, but it does not match. Nothing was done.";
}

/**
 * Makes this the agent's connection: the newest wins. False for a hello that was said before the one
 * that was obeyed last: the agent has given it up, and what it says is no longer true.
 */
export async function claimConnection(
  context: ServerContext,
  agentId: AgentId,
  connection: string,
  count: Hello["count"] | null,
): Promise<boolean> {
  const rows = await context.database.query(
    `update agents set connection = $2, server = $3, connected_at = clock_timestamp(),
       seen_at = clock_timestamp(), hello_folder = $4, hello_number = $5
     where id = $1 and ($5::bigint is null or hello_folder is distinct from $4 or hello_number < $5)
     returning id`,
    [agentId, connection, context.serverId, count?.folder ?? null, count?.number ?? null],
  );
  return rows.length > 0;
}

/**
 * Compares the agent's journal with the server's jobs: resumes, adopts, loses and forgets. While the
 * agent must still be asked what it did before the server was restored, it only resumes: what the
 * server does not know of may be the truth. Null when a newer connection has won meanwhile: only the
 * newest one's journal is obeyed.
 */
export async function resolveJournal(
  context: ServerContext,
  agent: KnownAgent,
  connection: string,
  { journal, isRecalling }: { journal: readonly JournalEntry[]; isRecalling: boolean },
): Promise<{ kept: KeptJob[]; forget: JobKey[] } | null> {
  const { database } = context;
  if (journal.length === 0 && (await readHeld(database, agent)).length === 0) {
    return { kept: [], forget: [] };
  }
  const settled = await database.transaction(`agent:${agent.id}`, async (sql) => {
    // The lock keeps a newer connection from being claimed, and offered anything, before this is done.
    const [own] = await sql.query(
      "select 1 from agents where id = $1 and connection = $2 for update",
      [agent.id, connection],
    );
    if (!own) return null;
    const rows = await readHeld(sql, agent);
    const judged = judgeJournal(
      rows.map(({ id, generation, n, revoked }) => ({
        key: { jobId: id, epoch: { generation, n } },
        agentRevoked: revoked,
      })),
      journal,
    );
    await renewLeases(sql, agent.id, judged.keep);
    if (isRecalling) return { rows, kept: judged.keep, forget: [] };
    for (const key of judged.adopt) await adoptJob(sql, agent.id, key);
    for (const key of judged.lost) {
      await settleNoTrace(context, sql, agent.id, key);
    }
    return { rows, kept: [...judged.keep, ...judged.adopt], forget: [...judged.forget] };
  });
  if (!settled) return null;
  context.wake.notify("reconcile");
  context.wake.notify("live");
  const manifests = new Map(settled.rows.map((row) => [row.id, row.manifest]));
  return {
    kept: await Promise.all(
      settled.kept.map(async (key) => ({
        key,
        manifest: readManifest(manifests.get(key.jobId) ?? ""),
        // The last stored event is asked for again: if it was the outcome, and the server died before it
        // took it, this is how it gets it. A repetition is left out, so it costs nothing.
        acknowledged: Math.max(0, (await lastStored(context, key)) - 1),
      })),
    ),
    forget: settled.forget,
  };
}

/** What this agent holds, and what those held that a person replaced with it. */
function readHeld(sql: Sql, agent: KnownAgent): Promise<HeldRow[]> {
  return sql.query<HeldRow>(
    `select jobs.id, jobs.generation, jobs.n, jobs.manifest, agents.revoked_at is not null as revoked
     from jobs join agents on agents.id = jobs.agent_id
     where jobs.agent_id = $1
        or jobs.agent_id in (select id from agents where install_id = $2 and revoked_at is not null)`,
    [agent.id, agent.install_id],
  );
}
