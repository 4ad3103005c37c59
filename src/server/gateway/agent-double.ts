/**
 * An agent as the gateway's tests play it: the real frames, signatures and checks, and nothing behind
 * them. It can also send what no real agent would.
 */
import assert from "node:assert/strict";
import { generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";
import { once } from "node:events";
import { WebSocket } from "ws";
import type { AgentId } from "../../model/ids.ts";
import { LeaseGrant } from "../../protocol/documents.ts";
import { gatewayPath } from "../../protocol/enrolment.ts";
import type { JobEvent } from "../../protocol/events.ts";
import {
  type AgentFrame,
  EffectFrame,
  type Hello,
  helloText,
  ServerFrame,
} from "../../protocol/frames.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import {
  decodePublicKey,
  encodePublicKey,
  verifyDocument,
} from "../../protocol/signed-document.ts";
import type { ServerContext } from "../context.ts";
import { createEnrolmentCode, enrolAgent } from "../enrolment.ts";

export interface AgentKey {
  readonly id: AgentId;
  readonly privateKey: KeyObject;
}

export type Effect<Type extends EffectFrame["type"]> = Extract<EffectFrame, { type: Type }>;
export type Frame<Type extends ServerFrame["type"]> = Extract<ServerFrame, { type: Type }>;
export type OpenSocket = Awaited<ReturnType<typeof openSocket>>;
export type AgentDouble = Awaited<ReturnType<typeof connectAgent>>;

/** A new agent: a build agent unless an install is named. */
export async function enrolDouble(
  context: ServerContext,
  installName: string | null = null,
): Promise<AgentKey> {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const role = installName === null ? "build" : "install";
  const { code } = await createEnrolmentCode(context, "token:test", { role, installName });
  const { agentId } = await enrolAgent(context, code, encodePublicKey(publicKey));
  return { id: agentId, privateKey };
}

/** A socket to the gateway at this address, before any hello. */
export async function openSocket(url: string) {
  const socket = new WebSocket(new URL(gatewayPath, url.replace("http", "ws")));
  const frames: ServerFrame[] = [];
  let closed: number | null = null;
  socket.on("message", (data) => frames.push(ServerFrame.parse(JSON.parse(data.toString()))));
  socket.on("close", (code) => (closed = code));
  socket.on("error", () => {});
  await once(socket, "open");
  /** The next frame of this type; those before it are dropped. */
  async function next<Type extends ServerFrame["type"]>(type: Type): Promise<Frame<Type>> {
    await until(() => frames.some((frame) => frame.type === type), `a ${type}`);
    const index = frames.findIndex((frame) => frame.type === type);
    const [frame] = frames.splice(0, index + 1).slice(index);
    return frame as Frame<Type>;
  }
  return {
    socket,
    frames,
    next,
    /** The code that it was closed with; null while it is open. */
    closed: () => closed,
    sendText: (text: string) => socket.send(text),
    send: (frame: AgentFrame) => socket.send(JSON.stringify(frame)),
    close: () => socket.close(),
  };
}

/** Connects and says hello; what the hello says can be changed. */
export async function connectAgent(
  url: string,
  context: ServerContext,
  agent: AgentKey,
  change: Partial<Hello> = {},
) {
  const opened = await openSocket(url);
  const { nonce } = await opened.next("challenge");
  const agentNonce = randomBytes(16).toString("base64url");
  const { rootKeyId, publicKeys } = context.keys;
  const text = helloText({ rootKeyId, nonce, agentNonce, agentId: agent.id });
  const hello: Hello = {
    type: "hello",
    protocol: 2,
    agentId: agent.id,
    agentNonce,
    signature: sign(null, Buffer.from(text), agent.privateKey).toString("base64url"),
    journal: [],
    freeSlots: 1,
    ...change,
  };
  opened.send(hello);
  const findKey = (keyId: string) =>
    publicKeys[keyId] ? decodePublicKey(publicKeys[keyId] ?? "") : null;
  async function nextEffect<Type extends EffectFrame["type"]>(type: Type): Promise<Effect<Type>> {
    for (;;) {
      const { document } = await opened.next("signed");
      const { payload } = await verifyDocument("landfall-frame", EffectFrame, document, findKey);
      if (payload.type === type) return payload as Effect<Type>;
    }
  }
  /** The next job that is offered. */
  async function nextJob(): Promise<JobKey> {
    const offer = await nextEffect("offer");
    const { payload } = await verifyDocument("landfall-grant", LeaseGrant, offer.grant, findKey);
    return { jobId: payload.jobId, epoch: payload.epoch };
  }
  /** Ends a job as an executor would, and waits until that is safe. */
  async function finish(key: JobKey, seq = 1): Promise<void> {
    opened.send({ type: "accepted", ...key });
    opened.send({ type: "events", ...key, events: [outcomeEvent(seq)] });
    await nextEffect("ack");
  }
  return { ...opened, agentNonce, hello, nextEffect, nextJob, finish };
}

/** A line of a job, as long as asked for. */
export function logEvent(seq: number, bytes = 0): JobEvent {
  const line = `line ${seq}`.padEnd(bytes, ".");
  return { seq, at: new Date(0).toISOString(), type: "log", stream: "stdout", line };
}

export function outcomeEvent(
  seq: number,
  status: "succeeded" | "failed" | "cancelled" = "succeeded",
): JobEvent {
  return { seq, at: new Date(0).toISOString(), type: "outcome", outcome: { status } };
}

/** Waits for a condition, never for a time. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  timeoutMs = 20_000,
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!(await condition())) {
    assert(performance.now() < deadline, `Expected within ${timeoutMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
