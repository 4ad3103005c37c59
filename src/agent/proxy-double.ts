/**
 * A proxy for the agent's own tests: a real CONNECT proxy on loopback, ours, with every way of standing
 * in the way that a test asks for.
 */
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { type AddressInfo, connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";

export type ProxyDouble = Awaited<ReturnType<typeof createProxyDouble>>;

export interface ProxyDoubleOptions {
  /** Where tunnels end, whatever name was asked for: names need not resolve. */
  readonly targetPort: number;
  readonly authorization?: string;
  /** Cuts a tunnel through which nothing came for this long, in either direction. */
  readonly idleCutMs?: number;
  readonly tls?: { key: string; cert: string };
}

/** Starts on a free port; `close` ends it and all its tunnels. */
export async function createProxyDouble(options: ProxyDoubleOptions) {
  const { targetPort, authorization, idleCutMs } = options;
  const asked: string[] = [];
  const sockets = new Set<Duplex>();
  const state = { status: 200, isSwallowing: false, cuts: 0 };

  const server = options.tls ? createSecureServer(options.tls, forward) : createServer(forward);

  /** Without CONNECT: an old reverse proxy, which drops what is meant for the next hop alone, `Upgrade` too. */
  function forward(incoming: IncomingMessage, answer: ServerResponse): void {
    const { connection: _connection, upgrade: _upgrade, ...headers } = incoming.headers;
    const { method, url: path } = incoming;
    const onward = request(
      { port: targetPort, method, path, headers, agent: false },
      (response) => {
        answer.writeHead(response.statusCode ?? 502, response.headers);
        response.pipe(answer);
      },
    );
    onward.on("error", () => answer.destroy());
    incoming.pipe(onward);
  }

  server.on("connect", (incoming: IncomingMessage, client: Duplex) => {
    asked.push(incoming.url ?? "");
    track(client);
    const given = incoming.headers["proxy-authorization"];
    const status = authorization !== undefined && given !== authorization ? 407 : state.status;
    if (status !== 200) {
      client.end(`HTTP/1.1 ${status} No\r\ncontent-length: 0\r\n\r\n`);
      return;
    }
    const target = connect(targetPort, "127.0.0.1", () => {
      client.write("HTTP/1.1 200 Connection established\r\n\r\n");
      pass(client, target);
      pass(target, client);
    });
    track(target);
  });

  function pass(from: Duplex, to: Duplex): void {
    const cut = () => {
      state.cuts++;
      from.destroy();
      to.destroy();
    };
    let idle = idleCutMs === undefined ? undefined : setTimeout(cut, idleCutMs);
    from.on("data", (chunk) => {
      clearTimeout(idle);
      if (idleCutMs !== undefined) idle = setTimeout(cut, idleCutMs);
      if (!state.isSwallowing) to.write(chunk);
    });
    from.on("close", () => {
      clearTimeout(idle);
      // A half-dead connection: the end of one side never reaches the other.
      if (!state.isSwallowing) to.destroy();
    });
  }

  function track(socket: Duplex): void {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
  }

  server.on("connection", (socket: Socket) => track(socket));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `${options.tls ? "https" : "http"}://127.0.0.1:${port}`,
    port,
    asked,
    state,
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
