/** The other half of the baselines: a WebSocket server that greets, echoes heartbeats, and pushes after a commit. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { type WebSocket, WebSocketServer } from "ws";
import { answer, clockMs } from "./exchange.ts";
import type { Usage } from "./server-under-test.ts";

const http = createServer();
const sockets = new WebSocketServer({ server: http, perMessageDeflate: false });
let client: pg.Client | null = null;

sockets.on("connection", (socket: WebSocket) => {
  socket.on("message", () => socket.send('{"type":"renewed"}'));
  socket.on("error", () => {});
  socket.send('{"type":"hello"}');
});

async function start(databaseUrl: string): Promise<{ url: string }> {
  client = new pg.Client(databaseUrl);
  await client.connect();
  await client.query("create table if not exists bare (id int, note text)");
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  return { url: `ws://127.0.0.1:${(http.address() as AddressInfo).port}` };
}

/** One insert, committed, then one push to the one client that is there; begun every `everyMs`. */
async function push({ count, everyMs }: { count: number; everyMs: number }) {
  const begun: { number: number; beginAtMs: number; committedAtMs: number }[] = [];
  const begin = clockMs();
  for (let number = 0; number < count; number++) {
    await sleep(Math.max(0, begin + number * everyMs - clockMs()));
    const beginAtMs = clockMs();
    await client?.query("insert into bare values ($1, $2)", [number, "a job"]);
    const committedAtMs = clockMs();
    for (const socket of sockets.clients) socket.send(JSON.stringify({ type: "push", number }));
    begun.push({ number, beginAtMs, committedAtMs });
  }
  return begun;
}

async function usage(collect: boolean): Promise<Usage> {
  for (let round = 0; collect && round < 4; round++) {
    globalThis.gc?.();
    await sleep(50);
  }
  const { rss, heapUsed, external, arrayBuffers } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  return {
    atMs: clockMs(),
    rssBytes: rss,
    heapBytes: heapUsed + external + arrayBuffers,
    cpuMs: (user + system) / 1000,
    loopMaxMs: 0,
    loopP50Ms: 0,
  };
}

const table = { start, push, usage };
export type BareServer = typeof table;

if (process.send) answer(table, async () => client?.end());
