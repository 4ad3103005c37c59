/** Where a registry listens, and how that is told: a clear refusal when the place is taken. */

import { rm } from "node:fs/promises";
import type { Server } from "node:http";
import { connect } from "node:net";
import { Fault } from "../model/fault.ts";
import type { RegistryListen } from "./registry-config.ts";

export interface ListenAddress {
  readonly url: string;
  /** 0 for a socket. */
  readonly port: number;
}

/** Lets the server listen; a port or socket in use is a `Fault` with code `conflict`. */
export async function listen(server: Server, where: RegistryListen): Promise<ListenAddress> {
  if ("socket" in where) await removeDeadSocket(where.socket);
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => reject(explain(error, where)));
    const listening = () => resolve();
    if ("socket" in where) server.listen(where.socket, listening);
    else server.listen(where.port, where.host, listening);
  });
  server.removeAllListeners("error");
  if ("socket" in where) return { url: `unix:${where.socket}`, port: 0 };
  const address = server.address();
  const port = typeof address === "object" && address ? address.port : where.port;
  const host = where.host.includes(":") ? `[${where.host}]` : where.host;
  return { url: `http://${host}:${port}`, port };
}

function explain(error: NodeJS.ErrnoException, where: RegistryListen): Error {
  const place = "socket" in where ? `the socket ${where.socket}` : `${where.host}:${where.port}`;
  if (error.code === "EADDRINUSE") {
    return new Fault(
      "conflict",
      `Expected ${place} to be free for the registry, but another process listens there. Stop it, or set another \`listen\` in the configuration.`,
      { cause: error },
    );
  }
  return new Fault(
    "unavailable",
    `Expected to listen on ${place}, got ${error.code ?? error.message}. Set another \`listen\` in the configuration.`,
    { cause: error },
  );
}

/** A socket file outlives a killed process; it is removed only when nobody answers on it. */
async function removeDeadSocket(path: string): Promise<void> {
  const code = await new Promise<string | null>((resolve) => {
    const socket = connect(path, () => {
      socket.destroy();
      resolve(null);
    });
    socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? ""));
  });
  if (code === "ECONNREFUSED") await rm(path, { force: true });
}
