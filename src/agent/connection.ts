/**
 * One connection to the server, from its challenge to its end. Frames are handled one after the other;
 * what is too large, malformed or not trusted has no effect.
 *
 * Invariant: the heartbeat is a message of its own in both directions, so a connection that is half
 * dead is noticed within two periods; no check uses the wall clock.
 */
import { randomBytes } from "node:crypto";
import { WebSocket } from "ws";
import type { z } from "zod";
import { describeError } from "../model/fault.ts";
import { gatewayPath } from "../protocol/enrolment.ts";
import {
  type Ack,
  type AgentFrame,
  type EffectFrame,
  frameBytesMax,
  type Goodbye,
  type Hello,
  ServerFrame,
  type Welcome,
} from "../protocol/frames.ts";
import type { JobKey } from "../protocol/job-key.ts";
import type { Identity } from "./identity.ts";
import type { Logger } from "./log.ts";
import type { Link } from "./running-job.ts";
import { answerChallenge, type FrameRefusal, openFrame, type Session } from "./session.ts";

const handshakeMs = 10_000;
/** Events wait while more than this is unsent, so that a renewal is never far back in the line. */
const bufferedBytesMax = 1024 * 1024;
const waitingFramesMax = 64;

/** What the rest of the agent does with a connection. */
export interface ConnectionHandlers {
  report(): Pick<Hello, "journal" | "freeSlots">;
  leases(): { jobs: JobKey[]; freeSlots: number };
  keysetSeen(number: number): Promise<void>;
  welcomed(link: Link, frame: z.output<typeof Welcome>): void;
  effect(frame: EffectFrame, session: Session, serverNowMs: number): Promise<void>;
  acknowledged(frame: z.output<typeof Ack>): void;
  refused(refusal: FrameRefusal): void;
}

export interface ConnectionOptions {
  readonly serverUrl: string;
  readonly identity: Identity;
  readonly handlers: ConnectionHandlers;
  readonly logger: Logger;
  readonly clock: () => number;
  readonly signal: AbortSignal;
}

export type ConnectionEnd = {
  readonly code: "closed" | "superseded" | z.output<typeof Goodbye>["code"];
  readonly reason: string;
  readonly welcomed: boolean;
};

/** Connects, and returns when the connection is over. */
export function runConnection(options: ConnectionOptions): Promise<ConnectionEnd> {
  const { handlers, identity, clock, signal } = options;
  const socket = new WebSocket(gatewayUrl(options.serverUrl), {
    maxPayload: frameBytesMax,
    perMessageDeflate: false,
    handshakeTimeout: handshakeMs,
    followRedirects: false,
  });
  const agentNonce = randomBytes(24).toString("base64url");
  let session: Session | null = null;
  let serverTime: { ms: number; atMs: number } | null = null;
  let goodbye: Pick<ConnectionEnd, "code" | "reason"> | null = null;
  let failure = "the server closed the connection";
  let lastHeardMs = clock();
  let heartbeat: NodeJS.Timeout | undefined;
  let waiting = 0;
  let queue: Promise<void> = Promise.resolve();

  const send = (frame: AgentFrame) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(frame));
  };
  const link: Link = {
    send,
    hasRoom: () => socket.readyState === WebSocket.OPEN && socket.bufferedAmount < bufferedBytesMax,
  };
  const giveUp = (reason: string) => {
    failure = reason;
    socket.terminate();
  };

  function refuse(refusal: FrameRefusal): void {
    handlers.refused(refusal);
    send({ type: "refused", job: null, code: refusal.code, reason: refusal.reason });
    if (refusal.gap) giveUp(refusal.reason);
  }

  function beat(leaseSeconds: number): void {
    const periodMs = (leaseSeconds * 1000) / 3;
    heartbeat = setInterval(() => {
      if (clock() - lastHeardMs > 2 * periodMs) return giveUp("the server fell silent");
      send({ type: "renew", ...handlers.leases() });
    }, periodMs);
  }

  async function takeSigned(document: string): Promise<void> {
    if (!session) {
      return refuse({ code: "invalid", reason: "Expected a challenge first.", gap: true });
    }
    const opened = await openFrame(session, document);
    if ("refusal" in opened) return refuse(opened.refusal);
    const { frame } = opened;
    if (frame.type === "welcome") {
      clearTimeout(greeting);
      serverTime = { ms: Date.parse(frame.serverTime), atMs: clock() };
      beat(frame.leaseSeconds);
      return handlers.welcomed(link, frame);
    }
    if (!serverTime) return;
    if (frame.type === "ack") return handlers.acknowledged(frame);
    if (frame.type === "superseded") {
      goodbye = { code: "superseded", reason: frame.reason };
      return socket.close();
    }
    await handlers.effect(frame, session, serverTime.ms + clock() - serverTime.atMs);
  }

  async function take(text: string): Promise<void> {
    const frame = parseFrame(text);
    if (!frame) {
      return refuse({ code: "invalid", reason: "Expected a frame of a known form.", gap: false });
    }
    if (frame.type === "signed") return takeSigned(frame.document);
    if (frame.type === "goodbye") {
      goodbye = frame;
      socket.close();
    }
    if (frame.type !== "challenge") return;
    if (session) return giveUp("the server sent a second challenge");
    const answer = await answerChallenge(identity, frame, agentNonce, handlers.report());
    if ("refusal" in answer) return giveUp(answer.refusal);
    await handlers.keysetSeen(answer.session.keyset.number);
    session = answer.session;
    send(answer.hello);
  }

  const greeting = setTimeout(() => giveUp("the server sent no welcome in time"), handshakeMs);
  const abort = () => socket.close(1001);
  signal.addEventListener("abort", abort, { once: true });

  socket.on("message", (data, isBinary) => {
    lastHeardMs = clock();
    if (isBinary) return giveUp("the server sent a binary frame");
    if (++waiting >= waitingFramesMax) socket.pause();
    queue = queue
      .then(() => take(String(data)))
      .catch((error) => giveUp(describeError(error)))
      .finally(() => {
        if (--waiting < waitingFramesMax) socket.resume();
      });
  });
  socket.on("ping", () => {
    lastHeardMs = clock();
  });
  socket.on("error", (error) => {
    failure = describeError(error);
  });
  return new Promise((resolve) => {
    socket.on("close", () => {
      clearTimeout(greeting);
      clearInterval(heartbeat);
      signal.removeEventListener("abort", abort);
      void queue.then(() =>
        resolve({
          code: goodbye?.code ?? "closed",
          reason: goodbye?.reason ?? failure,
          welcomed: serverTime !== null,
        }),
      );
    });
  });
}

function parseFrame(text: string): ServerFrame | null {
  try {
    return ServerFrame.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    return null;
  }
}

function gatewayUrl(serverUrl: string): URL {
  const url = new URL(gatewayPath, serverUrl);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url;
}
