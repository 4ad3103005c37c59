/**
 * The agent gateway: takes WebSockets on the server's ordinary port and keeps one connection per
 * agent. Nothing here opens a connection: agents come to us.
 */
import { randomUUID } from "node:crypto";
import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import { gatewayPath } from "../../protocol/enrolment.ts";
import { frameBytesMax } from "../../protocol/frames.ts";
import type { ServerContext } from "../context.ts";
import { buildQueue } from "../job-machine.ts";
import { type AgentConnection, serveAgent } from "./agent-connection.ts";

export interface Gateway {
  /** Takes an upgrade request for the gateway's path; false when it is for another. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): boolean;
  connectedCount(): number;
  close(): Promise<void>;
}

/** Creates the gateway; the caller hands it upgrade requests. */
export function createGateway(context: ServerContext): Gateway {
  const sockets = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false, // 17 times the memory, 7 times the CPU
    maxPayload: frameBytesMax,
  });
  const connections = new Map<string, { connection: AgentConnection; stop: () => void }>();

  sockets.on("connection", (socket) => {
    const id = randomUUID();
    serveAgent(context, socket, id, (connection) => {
      const { agent } = connection;
      connections.get(agent.id)?.connection.supersede();
      connections.get(agent.id)?.stop();
      const queue = agent.install_id ?? buildQueue;
      const stop = context.wake.listen(`jobs:${queue}`, () => connection.serveQueue());
      connections.set(agent.id, { connection, stop });
      socket.on("close", () => {
        stop();
        if (connections.get(agent.id)?.connection === connection) connections.delete(agent.id);
      });
    });
  });

  return {
    handleUpgrade(request, socket, head) {
      if (request.url?.split("?")[0] !== gatewayPath) return false;
      sockets.handleUpgrade(request, socket, head, (webSocket) => {
        sockets.emit("connection", webSocket, request);
      });
      return true;
    },
    connectedCount: () => connections.size,
    async close() {
      for (const socket of sockets.clients) socket.terminate();
      await new Promise<void>((resolve) => sockets.close(() => resolve()));
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
