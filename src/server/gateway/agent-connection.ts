/**
 * One agent's connection, from challenge to close.
 *
 *   opened --challenge--> challenged --hello--> ready --close--> closed
 *                              |
 *                              +-- bad hello --> goodbye, closed
 *
 * Frames of one connection are handled one after another, in order. A bad frame closes this
 * connection with a reason and harms nobody else. Every frame with an effect is signed and counted.
 */
import type { WebSocket } from "ws";
import { describeError } from "../../model/fault.ts";
import type { Manifest } from "../../protocol/documents.ts";
import {
  AgentFrame,
  type EffectFrame,
  type Hello,
  protocolVersions,
  type ServerFrame,
} from "../../protocol/frames.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import { signDocument } from "../../protocol/signed-document.ts";
import type { ServerContext } from "../context.ts";
import { newestCheckpoint } from "../history.ts";
import { buildQueue, leaseSeconds } from "../job-machine.ts";
import { holdWithoutRecall, type Teller, type ToldTry, takeRecalled } from "../recall.ts";
import { mustRecall } from "../restore.ts";
import { createCredentials, holdsToken, tokenMinutes } from "./credentials.ts";
import { claimConnection, type KnownAgent, resolveJournal, verifyHello } from "./handshake.ts";
import { claimOffers } from "./offers.ts";
import { handleReport } from "./reports.ts";

/** An effect without what every effect carries. */
type EffectBody = EffectFrame extends infer Frame
  ? Frame extends EffectFrame
    ? Omit<Frame, "counter" | "agentNonce" | "agentId">
    : never
  : never;

/** A connection that says nothing for this long is dead. */
const silenceMs = leaseSeconds * 1000;
const helloMs = 10_000;
const cancelGraceSeconds = 10;
const recalledMax = 10_000;

export interface AgentConnection {
  readonly id: string;
  readonly agent: KnownAgent;
  /** Claims and sends offers and cancels, as many as there are slots. */
  serveQueue(): void;
  /** A newer connection of the same agent has won. */
  supersede(): void;
}

/** Serves a socket until it closes. `onReady` is told once the agent has proved who it is. */
export function serveAgent(
  context: ServerContext,
  socket: WebSocket,
  id: string,
  onReady: (connection: AgentConnection) => void,
): void {
  const nonce = Buffer.from(context.random(24)).toString("base64url");
  const log = context.log.child({ connection: id });
  let agent: KnownAgent | null = null;
  let agentNonce = "";
  let counter = 0;
  let slots = 0;
  /** False while the agent says that it takes nothing: it is full, or about to stop. */
  let isTaking = false;
  const sentCancels = new Set<string>();
  const held = new Map<string, { key: JobKey; manifest: Manifest; renewAt: number }>();
  /** While the agent tells what it did before the server was restored. */
  let recall: { told: ToldTry[]; teller: Teller } | null = null;
  let work: Promise<void> = Promise.resolve();
  let silence = setTimeout(() => socket.terminate(), helloMs);

  /** Everything that must happen in order goes through here: frames in, effects out. */
  function enqueue(step: () => Promise<void>): void {
    work = work.then(step).catch((error: unknown) => {
      log.error({ err: error }, "Agent connection failed");
      close("retry", "The server failed to handle a frame. Connect again.");
    });
  }

  function send(frame: ServerFrame): void {
    if (socket.readyState === socket.OPEN) socket.send(JSON.stringify(frame));
  }

  async function sendEffect(body: EffectBody): Promise<void> {
    if (!agent) return;
    counter += 1;
    const payload = { ...body, counter, agentNonce, agentId: agent.id };
    send({
      type: "signed",
      document: await signDocument("landfall-frame", payload, context.keys.signing),
    });
  }

  function close(code: "retry" | "refused", reason: string): void {
    send({ type: "goodbye", code, reason });
    socket.close(1008, reason.slice(0, 100));
  }

  async function handleHello(frame: Extract<AgentFrame, { type: "hello" }>): Promise<void> {
    const found = await verifyHello(context, frame, nonce);
    if ("refusal" in found) return close("refused", found.refusal);
    agent = found;
    agentNonce = frame.agentNonce;
    await claimConnection(context, found.id, id);
    const isRecalling = await mustRecall(context, {
      agentId: found.id,
      journal: frame.journal,
      checkpoint: frame.checkpoint ?? null,
    });
    const { kept, forget } = await resolveJournal(context, found, frame.journal, isRecalling);
    for (const { key, manifest } of kept) held.set(key.jobId, { key, manifest, renewAt: 0 });
    slots = frame.freeSlots + kept.length;
    isTaking = frame.freeSlots > 0;
    const keep = kept.map(({ key, acknowledged }) => ({ ...key, acknowledged }));
    await sendEffect({
      type: "welcome",
      serverTime: context.now().toISOString(),
      generation: found.generation,
      leaseSeconds,
      keep,
      forget,
      ...(frame.protocol >= 2 ? { checkpoint: await newestCheckpoint(context) } : {}),
    });
    if (isRecalling) return askToRecall(found, frame);
    onReady({ id, agent: found, serveQueue, supersede });
    context.wake.notify("live");
    serveQueue();
  }

  /** The server was restored: the agent tells its part, then connects again as any other. */
  async function askToRecall(found: KnownAgent, frame: Hello): Promise<void> {
    if (frame.protocol < 2) {
      await holdWithoutRecall(context, found);
      return close("retry", "The server was restored; this agent is too old to tell its part.");
    }
    recall = { told: [], teller: { ...found, generationSeen: frame.generation ?? 0 } };
    await sendEffect({ type: "recall" });
  }

  async function handleRecalled(frame: Extract<AgentFrame, { type: "recalled" }>): Promise<void> {
    if (!recall) return close("refused", "Expected no `recalled`: nobody asked.");
    recall.told.push(...frame.jobs);
    if (recall.told.length > recalledMax) return close("refused", "Expected fewer jobs recalled.");
    if (frame.more) return;
    await takeRecalled(context, recall.teller, recall.told);
    close("retry", "Thank you: the server knows again what was done. Connect again.");
  }

  async function handleFrame(text: string): Promise<void> {
    const parsed = AgentFrame.safeParse(JSON.parse(text));
    if (!parsed.success) {
      return close(
        "refused",
        `Expected a frame of the protocol, got one that is not: ${parsed.error.message}`,
      );
    }
    const frame = parsed.data;
    if (frame.type === "hello") {
      if (agent) return close("refused", "Expected one hello, got a second.");
      return handleHello(frame);
    }
    if (!agent) return close("refused", "Expected hello first.");
    if (frame.type === "recalled") return handleRecalled(frame);
    if (frame.type === "renew") {
      isTaking = frame.freeSlots > 0;
      await renewTokens();
    }
    const report = await handleReport(context, agent.id, id, frame);
    if (report.superseded) return supersede();
    if (report.answer) send(report.answer);
    if (report.ack) await sendEffect({ type: "ack", ...report.ack });
    if (report.ended) held.delete(report.ended.jobId);
    if (report.ended || frame.type === "renew") serveQueue();
  }

  function serveQueue(): void {
    enqueue(async () => {
      if (!agent || socket.readyState !== socket.OPEN) return;
      await sendCancels(agent);
      const freeSlots = slots - held.size;
      if (!isTaking || freeSlots <= 0) return;
      const queue = agent.install_id ?? buildQueue;
      for (const offer of await claimOffers(
        context,
        { agentId: agent.id, connection: id },
        queue,
        freeSlots,
      )) {
        held.set(offer.key.jobId, {
          key: offer.key,
          manifest: offer.manifest,
          renewAt: renewTime(),
        });
        await sendEffect(offer.frame);
        context.wake.notify("live");
      }
    });
  }

  async function sendCancels({ id: agentId }: KnownAgent): Promise<void> {
    const rows = await context.database.query<{
      id: JobKey["jobId"];
      generation: number;
      n: number;
    }>(
      `select id, generation, n from jobs
       where agent_id = $1 and cancel_requested_at is not null and outcome is null`,
      [agentId],
    );
    for (const row of rows) {
      if (sentCancels.has(row.id)) continue;
      sentCancels.add(row.id);
      const epoch = { generation: row.generation, n: row.n };
      await sendEffect({ type: "cancel", jobId: row.id, epoch, graceSeconds: cancelGraceSeconds });
    }
  }

  /** Tokens live for minutes; a job that runs longer gets new ones in time. */
  async function renewTokens(): Promise<void> {
    for (const each of held.values()) {
      if (!holdsToken(each.manifest) || context.now().getTime() < each.renewAt) continue;
      each.renewAt = renewTime();
      const credentials = await context.database.transaction("server", (sql) =>
        createCredentials(context, sql, each.manifest, each.key),
      );
      await sendEffect({ type: "credentials", ...each.key, credentials });
    }
  }

  function renewTime(): number {
    return context.now().getTime() + (tokenMinutes * 60_000) / 2;
  }

  function supersede(): void {
    enqueue(async () => {
      const reason = "Another connection of this agent is newer.";
      await sendEffect({ type: "superseded", reason });
      socket.close(1008, reason);
    });
  }

  socket.on("message", (data, isBinary) => {
    clearTimeout(silence);
    silence = setTimeout(() => socket.terminate(), silenceMs);
    if (isBinary) return close("refused", "Expected text frames.");
    enqueue(() =>
      handleFrame(data.toString()).catch((error: unknown) => {
        if (!(error instanceof SyntaxError)) throw error;
        close("refused", `Expected JSON: ${describeError(error)}`);
      }),
    );
  });
  socket.on("error", (error) => log.info({ err: error }, "Agent socket failed"));
  socket.on("close", () => {
    clearTimeout(silence);
    enqueue(async () => {
      if (!agent) return;
      await context.database.query(
        "update agents set connection = null, connected_at = null where id = $1 and connection = $2",
        [agent.id, id],
      );
      context.wake.notify("live");
    });
  });
  send({
    type: "challenge",
    protocols: [...protocolVersions],
    nonce,
    serverTime: context.now().toISOString(),
    keyset: context.keys.keyset,
  });
}
