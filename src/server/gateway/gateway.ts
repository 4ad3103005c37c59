/**
 * The agent gateway: takes WebSockets on the server's ordinary port and keeps one connection per
 * agent. Nothing here opens a connection: agents come to us.
 *
 * What costs something per agent is done for all together: one timer sweeps all connections, one
 * statement writes all heartbeats, one looks for all that were woken.
 */
import { randomUUID } from "node:crypto";
import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import { gatewayPath } from "../../protocol/enrolment.ts";
import { frameBytesMax } from "../../protocol/frames.ts";
import type { ServerContext } from "../context.ts";
import { createCheckpoints } from "../history.ts";
import { serveAgent } from "./agent-connection.ts";
import { AgentSocket } from "./agent-socket.ts";
import type { AgentConnection, GatewayParts, Served } from "./gateway-parts.ts";
import { createHandshakeLine } from "./handshake-line.ts";
import { type GatewayLimits, gatewayLimits } from "./limits.ts";
import { createLookout } from "./lookout.ts";
import { createOfferDesk } from "./offers.ts";
import { createRefusalLog } from "./refusal-log.ts";
import { createReportDesk } from "./report-desk.ts";
import { createRollCall } from "./roll-call.ts";

export interface Gateway {
  /** Takes an upgrade request for the gateway's path; false when it is for another. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean;
  connectedCount(): number;
  close(): Promise<void>;
}

/** Creates the gateway; the caller hands it upgrade requests. */
export function createGateway(context: ServerContext, given: Partial<GatewayLimits> = {}): Gateway {
  const limits = { ...gatewayLimits, ...given };
  const sockets = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false, // 17 times the memory, 7 times the CPU
    maxPayload: frameBytesMax,
    clientTracking: false, // `served` does
    WebSocket: AgentSocket,
  });
  const served = new Map<AgentSocket, Served>();
  /** By connection. */
  const ready = new Map<string, AgentConnection>();
  const clock = startSweep(limits.sweepMs, (now) => {
    for (const each of served.values()) each.sweep(now);
  });
  const lookout = createLookout(context);
  const parts: GatewayParts = {
    context,
    limits,
    line: createHandshakeLine(limits.handshakesAtOnce),
    lookout,
    rollCall: createRollCall(context, limits, (id) => {
      const missing = ready.get(id);
      if (missing) lookout.look(missing);
    }),
    refusals: createRefusalLog(context),
    checkpoints: createCheckpoints(context),
    offerDesk: createOfferDesk(context),
    reportDesk: createReportDesk(context),
    sweepTime: clock.now,
  };

  function take(socket: AgentSocket): void {
    const stops: (() => void)[] = [];
    const id = randomUUID();
    served.set(
      socket,
      serveAgent(parts, socket, id, (connection) => {
        ready.set(id, connection);
        const look = () => lookout.look(connection);
        stops.push(context.wake.listen(`jobs:${connection.queue}`, look));
        stops.push(context.wake.listen(`agent:${connection.agentId}`, look));
      }),
    );
    socket.on("close", () => {
      served.delete(socket);
      ready.delete(id);
      for (const stop of stops) stop();
    });
  }

  return {
    handleUpgrade(request, socket, head) {
      if (request.url?.split("?")[0] !== gatewayPath) return false;
      if (served.size - ready.size >= limits.handshakesMax) {
        refuseUpgrade(socket, limits.retryAfterSeconds);
      } else {
        sockets.handleUpgrade(request, socket, head, take);
      }
      return true;
    },
    connectedCount: () => ready.size,
    async close() {
      clock.stop();
      const closed = [...served.keys()].map(
        (socket) => new Promise<void>((resolve) => socket.once("close", () => resolve())),
      );
      for (const socket of served.keys()) socket.terminate();
      await Promise.all(closed);
      await parts.rollCall.stop();
      sockets.close();
    },
  };
}

/** Hands a server's upgrade requests to the gateway; any other is refused. */
export function attachGateway(server: Server, gateway: Gateway): void {
  server.on("upgrade", (request, socket, head) => {
    if (gateway.handleUpgrade(request, socket, head)) return;
    socket.end("HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n");
  });
}

function refuseUpgrade(socket: Duplex, retryAfterSeconds: number): void {
  socket.on("error", () => {});
  socket.end(
    `HTTP/1.1 503 Service Unavailable\r\nretry-after: ${retryAfterSeconds}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`,
  );
}

/**
 * Calls back every so often with a time that passes only while this process runs: after a stop of a
 * minute, nobody has been silent for longer than two rounds.
 */
function startSweep(everyMs: number, onSweep: (now: number) => void) {
  let time = 0;
  let sweptAt = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    time += Math.min(now - sweptAt, 2 * everyMs);
    sweptAt = now;
    onSweep(time);
  }, everyMs);
  return { now: () => time, stop: () => clearInterval(timer) };
}
