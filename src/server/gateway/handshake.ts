/**
 * The handshake: the agent proves that it holds the key it enrolled with, and learns what to keep and
 * what to forget of the jobs it still knows.
 */
import { verify } from "node:crypto";
import type { AgentId } from "../../model/ids.ts";
import { compareEpochs } from "../../model/job.ts";
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
import { recordEvent } from "../event-queue.ts";
import { renewLeases } from "../job-machine.ts";
import { takeLoss } from "../jobs.ts";
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

/** Makes this the agent's connection: the newest wins. */
export async function claimConnection(
  context: ServerContext,
  agentId: AgentId,
  connection: string,
): Promise<void> {
  await context.database.query(
    `update agents set connection = $2, server = $3, connected_at = clock_timestamp(),
       seen_at = clock_timestamp() where id = $1`,
    [agentId, connection, context.serverId],
  );
}

/** Compares the agent's journal with the server's jobs: resumes, loses and forgets. */
export async function resolveJournal(
  context: ServerContext,
  agentId: AgentId,
  journal: readonly JournalEntry[],
): Promise<{ kept: KeptJob[]; forget: JobKey[] }> {
  const rows = await context.database.query<HeldRow>(
    "select id, generation, n, manifest from jobs where agent_id = $1",
    [agentId],
  );
  const held = rows.map(({ id, generation, n, manifest }) => ({
    key: { jobId: id, epoch: { generation, n } },
    manifest,
  }));
  const isKnown = ({ key }: { key: JobKey }) => journal.some((entry) => isSameTry(entry, key));
  const kept: KeptJob[] = [];
  for (const { key, manifest } of held.filter(isKnown)) {
    // The last stored event is asked for again: if it was the outcome, and the server died before it
    // took it, this is how it gets it. A repetition is left out, so it costs nothing.
    const acknowledged = Math.max(0, (await lastStored(context, key)) - 1);
    kept.push({ key, manifest: readManifest(manifest), acknowledged });
  }
  await context.database.transaction(`agent:${agentId}`, (sql) =>
    renewLeases(
      sql,
      agentId,
      kept.map(({ key }) => key),
    ),
  );
  for (const { key } of held.filter((each) => !isKnown(each))) {
    await takeLoss(context, agentId, key, "The agent came back without a trace of it.");
  }
  const forget = journal
    .filter((entry) => !kept.some(({ key }) => isSameTry(entry, key)))
    .map(({ jobId, epoch }) => ({ jobId, epoch }));
  return { kept, forget };
}

function isSameTry(a: JobKey, b: JobKey): boolean {
  return a.jobId === b.jobId && compareEpochs(a.epoch, b.epoch) === 0;
}
