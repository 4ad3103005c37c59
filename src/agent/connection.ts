/**
 * One connection to the server, from its challenge to its end. Frames are handled one after the other;
 * what is too large, malformed or not trusted has no effect.
 *
 * Invariants: a connection that is half dead is noticed within seconds (`line-watch.ts`), and a server that
 * answers no renewal within two periods; events never hold up a control frame (`event-lane.ts`); no
 * check uses the wall clock.
 */
import { randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import { WebSocket } from "ws";
import type { z } from "zod";
import { describeError, isFault } from "../model/fault.ts";
import { gatewayPath } from "../protocol/enrolment.ts";
import {
  type Ack,
  type AgentFrame,
  type EffectFrame,
  frameBytesMax,
  type Goodbye,
  ServerFrame,
  type Welcome,
} from "../protocol/frames.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { createEventLane } from "./event-lane.ts";
import type { Identity } from "./identity.ts";
import { type LineWatch, watchLine } from "./line-watch.ts";
import type { Logger } from "./log.ts";
import type { Route } from "./route.ts";
import type { Link } from "./running-job.ts";
import {
  answerChallenge,
  type FrameRefusal,
  type HelloReport,
  openFrame,
  type Session,
} from "./session.ts";
import { explainUpgradeAnswer, readRetryAfter } from "./upgrade-answer.ts";

const handshakeMs = 10_000;
const waitingFramesMax = 64;
/** Proxies cut connections that are idle for 60 s: the heartbeat comes three times as often at least. */
const heartbeatMaxMs = 20_000;
/** Going away, restarting, try again later: said to all agents of that server at once. */
const restartCloseCodes = [1001, 1012, 1013];

/** What the rest of the agent does with a connection. */
export interface ConnectionHandlers {
  report(): HelloReport;
  leases(): { jobs: JobKey[]; freeSlots: number };
  keysetSeen(number: number): Promise<void>;
  welcomed(link: Link, frame: z.output<typeof Welcome>): void;
  effect(frame: EffectFrame, session: Session, serverNowMs: number): Promise<void>;
  acknowledged(frame: z.output<typeof Ack>): void;
  refused(refusal: FrameRefusal): void;
}

export interface ConnectionOptions {
  readonly serverUrl: string;
  readonly route: Route;
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
  /** What the server asked for where it had no room for a connection. */
  readonly retryAfterMs: number | null;
};

/** Connects, and returns when the connection is over. */
export async function runConnection(options: ConnectionOptions): Promise<ConnectionEnd> {
  const url = gatewayUrl(options.serverUrl);
  try {
    return await converse(options, url, await options.route.open(url, options.signal));
  } catch (error) {
    if (!isFault(error, "unavailable")) throw error;
    return { code: "closed", reason: error.message, welcomed: false, retryAfterMs: null };
  }
}

/** How often the leases are renewed: three times in each, and often enough for any proxy. */
export function heartbeatMs(leaseSeconds: number): number {
  return Math.min((leaseSeconds * 1000) / 3, heartbeatMaxMs);
}

function converse(options: ConnectionOptions, url: URL, stream: Socket): Promise<ConnectionEnd> {
  const { handlers, identity, clock, signal } = options;
  const socket = new WebSocket(url, {
    createConnection: () => stream,
    maxPayload: frameBytesMax,
    perMessageDeflate: false,
    handshakeTimeout: handshakeMs,
    followRedirects: false,
  });
  const agentNonce = randomBytes(24).toString("base64url");
  let session: Session | null = null;
  let serverTime: { ms: number; atMs: number } | null = null;
  let goodbye: Pick<ConnectionEnd, "code" | "reason"> | null = null;
  let failure: string | null = null;
  let retryAfterMs: number | null = null;
  let lastFrameMs = clock();
  let lineWatch: LineWatch | null = null;
  let heartbeat: NodeJS.Timeout | undefined;
  let waiting = 0;
  let queue: Promise<void> = Promise.resolve();

  const write = (text: string, written?: () => void) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(text, written);
  };
  const lane = createEventLane({ write, bufferedBytes: () => socket.bufferedAmount });
  const send = (frame: AgentFrame) => {
    if (frame.type === "events") lane.put(frame);
    else write(JSON.stringify(frame));
  };
  const link: Link = {
    get protocol() {
      return session?.protocol ?? 1;
    },
    send,
    hasRoom: (key) => socket.readyState === WebSocket.OPEN && lane.hasRoom(key),
  };
  const giveUp = (reason: string) => {
    failure ??= reason; // what comes after it is its consequence
    socket.terminate();
  };
  const heard = () => lineWatch?.heard();

  function refuse(refusal: FrameRefusal): void {
    handlers.refused(refusal);
    send({ type: "refused", job: null, code: refusal.code, reason: refusal.reason });
    if (refusal.gap) giveUp(refusal.reason);
  }

  function beat(leaseSeconds: number): void {
    const periodMs = heartbeatMs(leaseSeconds);
    heartbeat = setInterval(() => {
      if (clock() - lastFrameMs > 2 * periodMs) return giveUp("the server answers no renewals");
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
      if (frame.creditBytes !== undefined) lane.setCredit(frame.creditBytes);
      return handlers.welcomed(link, frame);
    }
    if (!serverTime) return;
    if (frame.type === "ack") {
      lane.acknowledge(frame, frame.acknowledged);
      return handlers.acknowledged(frame);
    }
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

  socket.on("open", () => {
    lineWatch = watchLine({
      // While frames wait to be handled none is read: the silence is ours.
      ping: () => (socket.isPaused ? heard() : socket.ping()),
      giveUp: () => giveUp("the server fell silent: nothing came, not even the answer to a ping"),
    });
  });
  socket.on("unexpected-response", (_, response) => {
    retryAfterMs = readRetryAfter(response.headers["retry-after"]);
    response.resume();
    giveUp(explainUpgradeAnswer(url.origin, response.statusCode ?? null));
  });
  socket.on("message", (data, isBinary) => {
    heard();
    lastFrameMs = clock();
    if (isBinary) return giveUp("the server sent a binary frame");
    if (++waiting >= waitingFramesMax) socket.pause();
    queue = queue
      .then(() => take(String(data)))
      .catch((error) => giveUp(describeError(error)))
      .finally(() => {
        if (--waiting < waitingFramesMax) socket.resume();
      });
  });
  socket.on("ping", heard);
  socket.on("pong", heard);
  socket.on("error", (error) => {
    const isStripped = /^Invalid (Upgrade|Sec-WebSocket-Accept) header/.test(error.message);
    failure ??= isStripped ? explainUpgradeAnswer(url.origin, null) : describeError(error);
  });
  return new Promise((resolve) => {
    socket.on("close", (closeCode) => {
      clearTimeout(greeting);
      clearInterval(heartbeat);
      lineWatch?.stop();
      signal.removeEventListener("abort", abort);
      void queue.then(() =>
        resolve({
          code: goodbye?.code ?? (restartCloseCodes.includes(closeCode) ? "retry" : "closed"),
          reason: goodbye?.reason ?? failure ?? "the server closed the connection",
          welcomed: serverTime !== null,
          retryAfterMs,
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
