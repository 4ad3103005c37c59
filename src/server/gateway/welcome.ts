/** What an agent is told first: the challenge; and, when it has proved who it is: what goes on, what is over, and whether it must tell its part first. */
import { type Challenge, type Hello, protocolVersions } from "../../protocol/frames.ts";
import type { ServerContext } from "../context.ts";
import { newestCheckpoint } from "../history.ts";
import { leaseSeconds } from "../job-machine.ts";
import { mustRecall } from "../restore.ts";
import type { EffectBody } from "./frame-check.ts";
import { type KeptJob, type KnownAgent, resolveJournal } from "./handshake.ts";

/** The first frame of every connection. */
export function challengeOf(context: ServerContext, nonce: string): Challenge {
  return {
    type: "challenge",
    protocols: [...protocolVersions],
    nonce,
    serverTime: context.now().toISOString(),
    keyset: context.keys.keyset,
  };
}

export interface PreparedWelcome {
  readonly kept: readonly KeptJob[];
  /** The server was restored, and this agent has not told yet what it did. */
  readonly isRecalling: boolean;
  readonly effect: EffectBody;
}

/** Settles the agent's journal, and makes the welcome that says so; null when a newer connection has won. */
export async function prepareWelcome(
  context: ServerContext,
  agent: KnownAgent,
  hello: Hello,
  {
    connection,
    creditBytes,
    serverNow,
  }: { connection: string; creditBytes: number; serverNow: () => Date },
): Promise<PreparedWelcome | null> {
  const isRecalling = await mustRecall(context, {
    agentId: agent.id,
    journal: hello.journal,
    checkpoint: hello.checkpoint ?? null,
  });
  const { journal } = hello;
  const resolved = await resolveJournal(context, agent, connection, { journal, isRecalling });
  if (!resolved) return null;
  const { kept, forget } = resolved;
  const effect: EffectBody = {
    type: "welcome",
    serverTime: serverNow().toISOString(),
    generation: agent.generation,
    leaseSeconds,
    keep: kept.map(({ key, acknowledged }) => ({ ...key, acknowledged })),
    forget,
    creditBytes,
    ...(hello.protocol >= 2 ? { checkpoint: await newestCheckpoint(context) } : {}),
  };
  return { kept, isRecalling, effect };
}
