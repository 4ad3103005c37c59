/**
 * Stands between one agent and the server and does to their connections what networks do: cuts them,
 * holds them up, chops them, swallows everything without a word, lets the old one's bytes arrive late.
 *
 * Invariant: within one connection and direction the order of bytes is kept, as TCP keeps it; what is
 * reordered is whole connections against each other.
 */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

export interface FaultProxy {
  readonly url: string;
  /** Cuts every connection; new ones pass. */
  cut(): void;
  /** Nothing passes in either direction, and nobody is told; `heal` ends it. */
  hole(): void;
  /** Connections are refused and those that are there are cut; `heal` ends it. */
  refuse(): void;
  /** Everything takes so much longer, in pieces of at most so many bytes. */
  slow(delayMs: number, pieceBytes: number): void;
  /** The agent's side is cut now; what it has sent reaches the server only so much later. */
  late(delayMs: number): void;
  heal(): void;
  /** Live connections. */
  count(): number;
  close(): Promise<void>;
}

interface Settings {
  mode: "pass" | "hole" | "refuse";
  delayMs: number;
  pieceBytes: number;
}

interface Pair {
  readonly agent: Socket;
  readonly server: Socket;
  readonly up: Flow;
  readonly down: Flow;
  isLate: boolean;
}

interface Flow {
  push(bytes: Buffer): void;
  pump(): void;
  /** Holds everything for so long, then goes on, and ends the connection behind the last byte. */
  holdAndEnd(forMs: number): void;
  stop(): void;
}

const wholePieces = 1024 * 1024;
const gatherMs = 300;
const heldBytesMax = 64 * 1024 * 1024;

/** A proxy to the server's port on loopback. */
export async function startFaultProxy(serverPort: number): Promise<FaultProxy> {
  const settings: Settings = { mode: "pass", delayMs: 0, pieceBytes: wholePieces };
  const pairs = new Set<Pair>();

  function drop(pair: Pair): void {
    pairs.delete(pair);
    for (const part of [pair.up, pair.down]) part.stop();
    for (const socket of [pair.agent, pair.server]) socket.destroy();
  }

  function accept(agent: Socket): void {
    agent.on("error", () => {});
    if (settings.mode === "refuse") return void agent.destroy();
    const server = connect(serverPort, "127.0.0.1");
    const pair: Pair = {
      agent,
      server,
      up: createFlow(server, settings),
      down: createFlow(agent, settings),
      isLate: false,
    };
    pairs.add(pair);
    agent.on("data", (bytes) => pair.up.push(bytes));
    server.on("data", (bytes) => pair.down.push(bytes));
    agent.on("close", () => !pair.isLate && settings.mode !== "hole" && drop(pair));
    server.on("close", () => settings.mode !== "hole" && drop(pair));
    server.on("error", () => drop(pair));
  }

  const listener = createServer(accept).listen(0, "127.0.0.1");
  await once(listener, "listening");
  const address = listener.address();
  const port = address && typeof address === "object" ? address.port : 0;
  const cut = () => [...pairs].forEach(drop);
  return {
    url: `http://127.0.0.1:${port}`,
    cut,
    hole() {
      settings.mode = "hole";
    },
    refuse() {
      settings.mode = "refuse";
      cut();
    },
    slow(delayMs, pieceBytes) {
      Object.assign(settings, { delayMs, pieceBytes });
    },
    late(delayMs) {
      for (const pair of pairs) {
        pair.isLate = true;
        // What it says in this moment is on its way already when the connection goes.
        pair.up.holdAndEnd(gatherMs + delayMs);
        setTimeout(() => {
          pair.down.stop();
          pair.agent.destroy();
        }, gatherMs).unref();
      }
    },
    heal() {
      const wasHole = settings.mode === "hole";
      Object.assign(settings, { mode: "pass", delayMs: 0, pieceBytes: wholePieces });
      // What either side closed during the hole is heard of now.
      for (const pair of wholeOrGone(pairs, wasHole)) drop(pair);
      for (const { up, down } of pairs) for (const flow of [up, down]) flow.pump();
    },
    count: () => pairs.size,
    async close() {
      cut();
      listener.close();
      await once(listener, "close");
    },
  };
}

function wholeOrGone(pairs: ReadonlySet<Pair>, wasHole: boolean): Pair[] {
  return wasHole
    ? [...pairs].filter(({ agent, server }) => agent.destroyed || server.destroyed)
    : [];
}

function createFlow(target: Socket, settings: Settings): Flow {
  const waiting: { bytes: Buffer; dueMs: number }[] = [];
  let held = 0;
  let heldUntilMs = 0;
  let ends = false;
  let timer: NodeJS.Timeout | null = null;

  function pump(): void {
    if (timer) clearTimeout(timer);
    timer = null;
    const isHeld = settings.mode === "hole" && !ends;
    while (!isHeld) {
      const [next] = waiting;
      if (!next) break;
      const waitMs = Math.max(next.dueMs, heldUntilMs) - performance.now();
      if (waitMs > 0) {
        timer = setTimeout(pump, waitMs);
        return;
      }
      const piece = next.bytes.subarray(0, settings.pieceBytes);
      next.bytes = next.bytes.subarray(piece.length);
      if (next.bytes.length === 0) waiting.shift();
      held -= piece.length;
      target.write(piece);
      if (next.bytes.length > 0) {
        timer = setTimeout(pump, 1);
        return;
      }
    }
    if (ends && waiting.length === 0 && performance.now() >= heldUntilMs) target.end();
  }

  return {
    pump,
    push(bytes) {
      held += bytes.length;
      if (held > heldBytesMax) return void target.destroy();
      waiting.push({ bytes, dueMs: performance.now() + settings.delayMs });
      if (!timer) pump();
    },
    holdAndEnd(forMs) {
      heldUntilMs = performance.now() + forMs;
      ends = true;
      setTimeout(pump, forMs + 1).unref();
    },
    stop() {
      if (timer) clearTimeout(timer);
      waiting.length = 0;
    },
  };
}
