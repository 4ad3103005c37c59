/** What a connection costs when it is nothing but a connection: the other half of the baselines. */
import { WebSocket } from "ws";
import { fullJitterMs } from "../src/agent/backoff.ts";
import { clockMs } from "./exchange.ts";

const retryCapMs = 15_000;

export interface BareClient {
  readonly receipts: { number: number; atMs: number }[];
  connect(): void;
  cut(): void;
  /** True once the server has greeted it, so that both sides know of the connection. */
  isOpen(): boolean;
  close(): void;
}

/** A client that stays connected from its first `connect` on, with the agent's own jitter. */
export function createBareClient(url: string, heartbeatMs: number): BareClient {
  const receipts: { number: number; atMs: number }[] = [];
  let socket: WebSocket | null = null;
  let isOpen = false;
  let isClosed = false;
  let attempt = 0;

  function connect(): void {
    const own = new WebSocket(url, { perMessageDeflate: false });
    socket = own;
    let heartbeat: NodeJS.Timeout | undefined;
    own.on("message", (data) => {
      const frame = JSON.parse(String(data)) as { type: string; number: number };
      if (frame.type === "push") receipts.push({ number: frame.number, atMs: clockMs() });
      if (frame.type !== "hello") return;
      isOpen = true;
      heartbeat = setInterval(() => own.send('{"type":"renew"}'), heartbeatMs);
    });
    own.on("error", () => {});
    own.on("close", () => {
      clearInterval(heartbeat);
      if (isOpen) attempt = 0;
      isOpen = false;
      if (!isClosed) setTimeout(connect, fullJitterMs(attempt++, retryCapMs, Math.random));
    });
  }
  return {
    receipts,
    connect,
    cut() {
      isOpen = false;
      attempt = 0;
      socket?.terminate();
    },
    isOpen: () => isOpen,
    close() {
      isClosed = true;
      socket?.terminate();
    },
  };
}
