/**
 * One agent's connection, from challenge to close.
 *
 *   challenged --hello--> greeted (in line) --welcome--> ready --------------+
 *       |                    |                             |                  |
 *       |  bad frame, no      |  refused                   |  bad frame,      |  socket ends,
 *       |  hello in time      |                            |  superseded,     |  silence
 *       v                    v                             v  revoked         v
 *     closing (goodbye, with a reason; nothing more is taken) ------------> closed
 *
 * What comes in is begun one thing at a time, control before events (`inbox.ts`, `under-way.ts`). A bad frame, or a
 * failure while one is handled, closes this connection with a reason and harms nobody else. Every frame
 * with an effect is signed and counted. An idle connection owns no timer: one shared sweep looks at all.
 */
import { isFault } from "../../model/fault.ts";
import { type AgentFrame, frameBytesMax, type Hello } from "../../protocol/frames.ts";
import { buildQueue } from "../job-machine.ts";
import { holdWithoutRecall } from "../recall.ts";
import { type AgentSocket, watchSocket } from "./agent-socket.ts";
import { createEffects, sendFrame } from "./effects.ts";
import { readFrame } from "./frame-check.ts";
import type { AgentConnection, GatewayParts, Served } from "./gateway-parts.ts";
import { claimConnection, type KnownAgent, verifyHello } from "./handshake.ts";
import { createHeldJobs } from "./held-jobs.ts";
import { createInbox } from "./inbox.ts";
import type { Finding } from "./lookout.ts";
import { beginRecall, type RecallSession } from "./recall-session.ts";
import type { Report } from "./reports.ts";
import { createSteadyClock } from "./steady-clock.ts";
import { createUnderWay } from "./under-way.ts";
import { challengeOf, prepareWelcome } from "./welcome.ts";

type Renew = Extract<AgentFrame, { type: "renew" }>;
type Recalled = Extract<AgentFrame, { type: "recalled" }>;

/** Serves a socket until it closes. `onReady` is told once the agent has proved who it is. */
export function serveAgent(
  parts: GatewayParts,
  socket: AgentSocket,
  id: string,
  onReady: (connection: AgentConnection) => void,
): Served {
  const { context, limits, line, lookout, rollCall, refusals, checkpoints } = parts;
  const { offerDesk, reportDesk } = parts;
  const nonce = Buffer.from(context.random(24)).toString("base64url");
  let phase: "challenged" | "greeted" | "ready" | "closing" | "closed" = "challenged";
  let connection: AgentConnection | null = null;
  let agent: KnownAgent | null = null;
  /** True once the agent's row names this connection. */
  let isClaimed = false;
  let protocol: number | null = null;
  /** While the agent tells what it did before the server was restored. */
  let recall: RecallSession | null = null;
  let slots = 0;
  /** False while the agent says that it takes nothing: it is full, or about to stop. */
  let isTaking = false;
  let isDraining = false;
  /** Bytes of events that are not acknowledged yet. */
  let creditUsed = 0;
  const liveness = watchSocket(socket, limits, parts.sweepTime);
  const effects = createEffects(context, socket);
  const serverNow = createSteadyClock(context.now, () => performance.now());
  const held = createHeldJobs(context, effects.send);
  const inbox = createInbox({
    bytesPerSecond: limits.eventBytesPerSecond,
    bytesBurst: limits.eventBytesBurst,
    onError: fail,
  });
  const underWay = createUnderWay();

  function fail(error: unknown): void {
    const level = isFault(error) ? "info" : "error";
    context.log[level]({ err: error, connection: id, agent: agent?.id }, "A frame failed");
    close("retry", "The server failed to handle a frame. Connect again.");
  }

  function close(code: "retry" | "refused", reason: string): void {
    if (isOver()) return;
    sendFrame(socket, { type: "goodbye", code, reason });
    end(reason);
  }

  function end(reason: string): void {
    phase = "closing";
    liveness.hear();
    inbox.dropBulk();
    socket.closeFor(reason);
  }

  function isOver(): boolean {
    return phase === "closing" || phase === "closed";
  }

  /** What the agent sent is not of the protocol: it is told, and it is on record. */
  function refuse(reason: string): void {
    if (isOver()) return;
    refusals.record(agent, reason);
    close("refused", reason);
  }

  async function handleHello(hello: Hello): Promise<void> {
    // Whoever went away while it waited in line costs nothing more.
    if (phase !== "greeted") return;
    const found = await verifyHello(context, hello, nonce);
    if ("refusal" in found) return close("refused", found.refusal);
    agent = found;
    effects.address({ ...hello, agentId: found.id });
    if (!(await claimConnection(context, found.id, id, hello.count ?? null))) {
      return close("retry", "A later hello of this agent was heard first. Connect again.");
    }
    if (phase !== "greeted") return rollCall.gone({ agentId: found.id, connection: id });
    isClaimed = true;
    // Its older connection, on whatever server, looks at once and finds itself superseded.
    context.wake.notify(`agent:${found.id}`);
    const welcome = await prepareWelcome(context, found, hello, {
      connection: id,
      creditBytes: limits.creditBytes,
      serverNow,
    });
    if (!welcome)
      return close("retry", "Another connection of this agent is newer. Connect again.");
    for (const { key, manifest } of welcome.kept) held.hold(key, manifest, false);
    slots = hello.slots ?? hello.freeSlots + welcome.kept.length;
    isTaking = hello.freeSlots > 0;
    await effects.send(welcome.effect);
    if (welcome.isRecalling) await askToRecall(found, hello);
    else becomeReady(found, hello);
  }

  /** The server was restored: the agent tells its part, then connects again as any other. */
  async function askToRecall(found: KnownAgent, hello: Hello): Promise<void> {
    if (hello.protocol < 2) {
      await holdWithoutRecall(context, found);
      return close("retry", "The server was restored; this agent is too old to tell its part.");
    }
    recall = beginRecall(context, { ...found, generationSeen: hello.generation ?? 0 });
    await effects.send({ type: "recall" });
  }

  async function handleRecalled(page: Recalled): Promise<void> {
    if (isOver()) return;
    if (!recall) return refuse("Expected no `recalled`, since nobody asked, got one.");
    const taken = await recall.take(page);
    if (taken === "refused") return refuse("Expected fewer jobs recalled, got too many.");
    if (taken === "more") return;
    close("retry", "Thank you: the server knows again what was done. Connect again.");
  }

  function becomeReady(found: KnownAgent, hello: Hello): void {
    if (phase !== "greeted") return;
    const { protocol: spoken, slots: told = null, version = null } = hello;
    const traits = { protocol: spoken, slots: told, version };
    phase = "ready";
    rollCall.heard({ agentId: found.id, connection: id, traits });
    const queue = found.install_id ?? buildQueue;
    connection = { id, agent: found, agentId: found.id, queue, found: takeFinding };
    onReady(connection);
    context.wake.notify("live");
    lookout.look(connection);
  }

  /** What a look at the database gave: whether this connection still counts, and what there is to do. */
  function takeFinding(finding: Finding): void {
    inbox.first(async () => {
      if (phase !== "ready" || !agent) return;
      if (finding.revoked) {
        return close("refused", "This agent has been revoked. Enrol a new one to go on.");
      }
      if (finding.connection === null) {
        return close("retry", "The server had lost sight of this connection. Connect again.");
      }
      if (finding.connection !== id) return supersede();
      isDraining = finding.draining;
      await held.sendCancels(finding.cancels);
      if (finding.waiting) await offerJobs(agent);
    });
  }

  async function offerJobs({ id: agentId, install_id }: KnownAgent): Promise<void> {
    const freeSlots = slots - held.count;
    if (isDraining || !isTaking || freeSlots <= 0) return;
    const ask = { agentId, connection: id, queue: install_id ?? buildQueue, limit: freeSlots };
    const offers = await offerDesk.add({ ...ask, serverNow });
    for (const { key, manifest, frame } of offers) {
      held.hold(key, manifest, true);
      await effects.send(frame);
    }
    if (offers.length > 0) context.wake.notify("live");
  }

  async function supersede(): Promise<void> {
    const reason = "Another connection of this agent is newer.";
    await effects.send({ type: "superseded", reason });
    if (!isOver()) end(reason);
  }

  async function handleRenew(frame: Renew): Promise<void> {
    if (!agent || isOver()) return;
    const wasTaking = isTaking;
    isTaking = frame.freeSlots > 0;
    rollCall.heard({ agentId: agent.id, connection: id });
    rollCall.renew(agent.id, frame.jobs);
    sendFrame(socket, { type: "renewed", serverTime: serverNow().toISOString() });
    await held.renewTokens();
    if (connection && isTaking && !wasTaking) lookout.look(connection);
  }

  /** Goes on to the next report at once, unless many are under way. */
  function handOver(frame: Report, bytes: number, onDone?: () => void): Promise<void> {
    return underWay.add(frame, bytes, () => handleJobReport(frame).catch(fail).finally(onDone));
  }

  async function handleJobReport(frame: Report): Promise<void> {
    // What was received before the socket ended is still true.
    if (!agent || phase === "closing") return;
    const { ack, ended } = await reportDesk.take(agent.id, frame);
    // With an outcome goes the place in history where it stands: losing it later will be noticed.
    const place =
      ack && ended && (protocol ?? 1) >= 2 ? { checkpoint: await checkpoints.newest() } : {};
    if (ack) await effects.send({ type: "ack", ...ack, ...place });
    if (!ended) return;
    held.release(ended);
    if (connection && phase === "ready") lookout.look(connection);
  }

  function take(data: Buffer, isBinary: boolean): void {
    if (isOver()) return;
    liveness.hear();
    const read = readFrame(data, isBinary, protocol);
    if ("refusal" in read) refuse(read.refusal);
    else if (read.frame.type === "hello") greet(read.frame);
    else if (phase === "challenged") {
      refuse(`Expected \`hello\` first, got \`${read.frame.type}\`.`);
    } else if (inbox.controlCount >= limits.controlFramesMax) {
      refuse(`Expected at most ${limits.controlFramesMax} frames at once, got more.`);
    } else takeReport(read.frame, data.length);
  }

  function greet(hello: Hello): void {
    if (phase === "challenged") {
      phase = "greeted";
      protocol = hello.protocol;
      inbox.first(() => line.enter(() => handleHello(hello)));
    } else refuse("Expected one `hello`, got a second.");
  }

  function takeReport(frame: Report | Renew | Recalled, bytes: number): void {
    if (frame.type === "renew") inbox.first(() => handleRenew(frame));
    else if (frame.type === "events") takeBulk(frame, frame.jobId, bytes);
    else if (frame.type === "recalled") takeBulk(frame, null, bytes);
    // A loss comes after the events of the same job, which may hold its outcome.
    else if (frame.type === "lost" && inbox.hasBulkOf(frame.jobId)) {
      takeBulk(frame, frame.jobId, 0);
    } else inbox.first(() => handOver(frame, 0));
  }

  function takeBulk(frame: Report | Recalled, jobId: string | null, bytes: number): void {
    const credited = frame.type === "events" && protocol !== 1 ? bytes : 0;
    creditUsed += credited;
    inbox.later(jobId, bytes, async () => {
      if (frame.type === "recalled") return handleRecalled(frame);
      await handOver(frame, bytes, () => {
        creditUsed -= credited;
      });
      if (socket.isPaused && !isOver()) socket.resume();
    });
    if (creditUsed > limits.creditBytes + frameBytesMax) {
      refuse(
        `Expected at most ${limits.creditBytes} bytes of events without an ack, got ${creditUsed}. Wait for acks.`,
      );
    } else if (inbox.bulkBytes > limits.creditBytes + frameBytesMax) {
      // Version 1 knows no credits: it is not read any further until there is room.
      socket.pause();
    }
  }

  function sweep(now: number): void {
    const silentMs = liveness.silentMs(now);
    if (phase === "closing") {
      if (silentMs >= limits.goodbyeMs) socket.terminate();
    } else if (phase === "challenged" && silentMs >= limits.helloMs) {
      refuse(`Expected \`hello\` within ${limits.helloMs / 1000} s, got nothing.`);
    } else {
      liveness.check(now);
    }
  }

  socket.on("message", take);
  socket.on("error", (error) => {
    context.log.info({ err: error, connection: id, agent: agent?.id }, "An agent's socket failed");
    if (!("code" in error) || !String(error.code).startsWith("WS_ERR_") || isOver()) return;
    // The socket has said goodbye by itself.
    refusals.record(agent, error.message);
    phase = "closing";
    inbox.dropBulk();
  });
  socket.on("close", () => {
    phase = "closed";
    inbox.dropBulk();
    if (agent && isClaimed) rollCall.gone({ agentId: agent.id, connection: id });
  });
  sendFrame(socket, challengeOf(context, nonce));
  return {
    sweep,
    get connection() {
      return connection;
    },
  };
}
