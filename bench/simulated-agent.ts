/**
 * One simulated agent: a real `ws` connection and the real protocol code. It answers the challenge
 * with its own key, verifies every signature and every counter, decides over offers as the real agent
 * does, and comes back with the agent's own jitter. Only the executor is missing: a job ends as soon
 * as it is accepted, or when the measurement says so.
 */
import { randomBytes } from "node:crypto";
import { WebSocket } from "ws";
import type { z } from "zod";
import { fullJitterMs } from "../src/agent/backoff.ts";
import type { Identity } from "../src/agent/identity.ts";
import { decideOffer, type VerifiedOffer, verifyOffer } from "../src/agent/offer.ts";
import { answerChallenge, openFrame, type Session } from "../src/agent/session.ts";
import type { Epoch, Operation } from "../src/model/job.ts";
import { gatewayPath } from "../src/protocol/enrolment.ts";
import type { JobEvent, OutcomeSchema } from "../src/protocol/events.ts";
import {
  type AgentFrame,
  type EffectFrame,
  frameBytesMax,
  ServerFrame,
} from "../src/protocol/frames.ts";
import type { JobKey } from "../src/protocol/job-key.ts";
import { clockMs } from "./exchange.ts";

/** As in `src/agent/agent.ts`. */
const retryCapMs = 15_000;
const handshakeMs = 10_000;
const eventsPerJob = 3;

type Outcome = z.output<typeof OutcomeSchema>;

/** What all agents of a process report to. */
export interface Observer {
  welcomed(agentId: string): void;
  /** An offer whose frame, manifest and grant are verified, and that was decided to be launched. */
  launched(jobId: string, atMs: number): void;
  ended(jobId: string): void;
  refused(reason: string): void;
  readonly holdsJobs: () => boolean;
  readonly outcomeOf: (operation: Operation) => Outcome;
}

export interface SimulatedAgent {
  connect(): void;
  /** Cuts the connection without a word; it comes back by itself. */
  cut(): void;
  /** Ends the jobs that were held. */
  finishAll(): void;
  isWelcomed(): boolean;
  close(): void;
}

interface Held {
  readonly verified: VerifiedOffer;
  finished: boolean;
}

/** An agent that connects when it is told to, and stays connected from then on. */
export function createSimulatedAgent(
  serverUrl: string,
  identity: Identity,
  slots: number,
  observer: Observer,
): SimulatedAgent {
  const url = new URL(gatewayPath, serverUrl.replace(/^http/, "ws"));
  const held = new Map<string, Held>();
  const epochs = new Map<string, Epoch>();
  let socket: WebSocket | null = null;
  let session: Session | null = null;
  let isWelcomed = false;
  let isClosed = false;
  let attempt = 0;
  let serverTime = { ms: 0, atMs: 0 };
  let heartbeat: NodeJS.Timeout | undefined;
  let greeting: NodeJS.Timeout | undefined;
  let agentNonce = "";
  let toldFull = false;
  let queue: Promise<void> = Promise.resolve();

  const send = (frame: AgentFrame) => {
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(frame));
  };
  const freeSlots = () => slots - held.size;

  function connect(): void {
    const own = new WebSocket(url, {
      maxPayload: frameBytesMax,
      perMessageDeflate: false,
      handshakeTimeout: handshakeMs,
    });
    socket = own;
    session = null;
    agentNonce = randomBytes(24).toString("base64url");
    greeting = setTimeout(() => own.terminate(), handshakeMs);
    own.on("message", (data) => {
      queue = queue.then(() => take(own, String(data))).catch((error) => fail(own, error));
    });
    own.on("error", () => {});
    own.on("close", () => {
      clearTimeout(greeting);
      clearInterval(heartbeat);
      if (isWelcomed) attempt = 0;
      isWelcomed = false;
      if (isClosed) return;
      setTimeout(connect, fullJitterMs(attempt++, retryCapMs, Math.random));
    });
  }

  function fail(own: WebSocket, error: unknown): void {
    observer.refused(String(error));
    own.terminate();
  }

  async function take(own: WebSocket, text: string): Promise<void> {
    const frame = ServerFrame.parse(JSON.parse(text));
    if (frame.type === "goodbye") return observer.refused(frame.reason);
    if (frame.type === "challenge") {
      const journal = [...held.values()].map(({ verified, finished }) => ({
        ...verified.key,
        state: finished ? ("ended" as const) : ("running" as const),
      }));
      const report = { journal, freeSlots: freeSlots() };
      const greeted = await answerChallenge(identity, frame, agentNonce, report);
      if ("refusal" in greeted) throw new Error(greeted.refusal);
      session = greeted.session;
      return send(greeted.hello);
    }
    if (frame.type !== "signed") return;
    if (!session) throw new Error("Expected a challenge first.");
    const opened = await openFrame(session, frame.document);
    if ("refusal" in opened) throw new Error(opened.refusal.reason);
    if (own === socket) await takeEffect(opened.frame, session);
  }

  async function takeEffect(frame: EffectFrame, own: Session): Promise<void> {
    if (frame.type === "welcome") {
      clearTimeout(greeting);
      serverTime = { ms: Date.parse(frame.serverTime), atMs: clockMs() };
      isWelcomed = true;
      heartbeat = setInterval(renew, (frame.leaseSeconds * 1000) / 3);
      observer.welcomed(identity.agentId);
      for (const { acknowledged, ...key } of frame.keep) resume(key, acknowledged);
      for (const key of frame.forget) forget(key);
    } else if (frame.type === "offer") await takeOffer(frame, own);
    else if (frame.type === "ack") acknowledge(frame, frame.acknowledged);
    else if (frame.type === "recall") send({ type: "recalled", jobs: [], more: false });
  }

  function renew(): void {
    const jobs = [...held.values()].map(({ verified }) => verified.key);
    toldFull = freeSlots() === 0;
    send({ type: "renew", jobs, freeSlots: freeSlots() });
  }

  async function takeOffer(
    offer: { readonly manifest: string; readonly grant: string },
    { findKey }: Session,
  ): Promise<void> {
    const verified = await verifyOffer(offer, findKey);
    const { key, component, manifestDigest } = verified;
    const decision = decideOffer(verified, {
      agentId: identity.agentId,
      serverNowMs: serverTime.ms + clockMs() - serverTime.atMs,
      newestEpoch: epochs.get(key.jobId) ?? null,
      jobs: [...held.values()].map((each) => ({ ...each.verified, over: each.finished })),
      freeSlots: freeSlots(),
    });
    if (decision.kind === "refuse") {
      const { code, reason } = decision;
      observer.refused(`${code}: ${reason} (${component}, ${manifestDigest})`);
      return send({ type: "refused", job: key, code, reason });
    }
    if (decision.kind === "launch") {
      observer.launched(key.jobId, clockMs());
      epochs.set(key.jobId, key.epoch);
      held.set(key.jobId, { verified, finished: false });
    }
    send({ type: "accepted", ...key });
    if (!observer.holdsJobs()) finish(key);
  }

  function finish(key: JobKey): void {
    const job = held.get(key.jobId);
    if (!job) return;
    job.finished = true;
    send({ type: "events", ...key, events: eventsOf(job) });
  }

  /** The server knows the job: it gets what it has not stored yet. */
  function resume(key: JobKey, acknowledged: number): void {
    const job = held.get(key.jobId);
    if (!job?.finished) return;
    const events = eventsOf(job).filter(({ seq }) => seq > acknowledged);
    if (events.length > 0) send({ type: "events", ...key, events });
  }

  function acknowledge(key: JobKey, acknowledged: number): void {
    if (acknowledged >= eventsPerJob && held.get(key.jobId)?.finished) forget(key);
  }

  /** Two lines and an outcome. */
  function eventsOf({ verified }: Held): JobEvent[] {
    const at = new Date().toISOString();
    const outcome = observer.outcomeOf(verified.manifest.operation);
    return [
      { seq: 1, at, type: "log", stream: "stdout", line: "nothing to do" },
      { seq: 2, at, type: "log", stream: "stdout", line: "done" },
      { seq: eventsPerJob, at, type: "outcome", outcome },
    ];
  }

  function forget(key: JobKey): void {
    if (!held.delete(key.jobId)) return;
    epochs.delete(key.jobId);
    observer.ended(key.jobId);
    if (toldFull) renew(); // a server that was told "full" offers nothing until it hears otherwise
  }

  return {
    connect,
    cut: () => socket?.terminate(),
    finishAll() {
      for (const { verified, finished } of held.values()) if (!finished) finish(verified.key);
    },
    isWelcomed: () => isWelcomed,
    close() {
      isClosed = true;
      socket?.terminate();
    },
  };
}
