/**
 * The guestbook's store: entries and counters over HTTP, for whoever knows the password.
 *
 *   GET  /healthz              is it up (no password)
 *   GET  /entries?limit=50     the newest entries and how many there are
 *   POST /entries              { name, message } → the new entry
 *   PUT  /entries/:id          the same, but only if there is none of that id
 *   PUT  /schema               { version } → the higher of old and new
 *   GET  /counters/:name       { value };  POST adds one
 */
import { createHash, randomUUID, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { openStore } from "./store.mjs";

const { PORT = "0", DATA_DIR = ".", DATABASE_PASSWORD = "" } = process.env;
const bodyBytesMax = 16_384;
const limitMax = 200;

if (DATABASE_PASSWORD === "") {
  console.error("Expected DATABASE_PASSWORD in the environment, got none.");
  process.exit(1);
}

const store = openStore(DATA_DIR);
const server = createServer((request, response) => {
  answer(request).then(
    ([status, body]) => send(response, status, body),
    (error) => {
      if (!error.status) console.error(error);
      send(response, error.status ?? 500, {
        error: error.status ? error.message : "internal error",
      });
    },
  );
});
server.requestTimeout = 10_000;
server.listen(Number(PORT), "127.0.0.1", () => {
  console.log(`listening on 127.0.0.1:${server.address().port}, ${store.count()} entries`);
});

process.on("SIGTERM", () => {
  server.close(() => process.exit(0));
  server.closeAllConnections();
});

async function answer(request) {
  const url = new URL(request.url, "http://database");
  const [, collection, id] = url.pathname.split("/");
  const route = `${request.method} /${collection}${id ? "/:id" : ""}`;
  if (route === "GET /healthz") return [200, { ok: true }];
  if (!isAllowed(request)) throw refusal(401, "the password is missing or wrong");
  switch (route) {
    case "GET /entries":
      return [200, store.newest(clamp(url.searchParams.get("limit")))];
    case "POST /entries":
      return [201, store.add({ id: randomUUID(), ...entryFrom(await readJson(request)) })];
    case "PUT /entries/:id":
      return [200, store.addOnce({ id, ...entryFrom(await readJson(request)) })];
    case "PUT /schema":
      return [200, store.raiseSchema(Number((await readJson(request)).version) || 0)];
    case "GET /counters/:id":
      return [200, { value: store.counter(id) }];
    case "POST /counters/:id":
      return [200, { value: store.increase(id) }];
    default:
      throw refusal(404, "no such thing");
  }
}

/** Digests are compared, so that neither length nor content shows in the time it takes. */
function isAllowed(request) {
  const digest = (text) => createHash("sha256").update(text).digest();
  const given = request.headers.authorization ?? "";
  return timingSafeEqual(digest(given), digest(`Bearer ${DATABASE_PASSWORD}`));
}

function entryFrom(body) {
  const name = text(body.name, 60);
  const message = text(body.message, 500);
  if (name === "" || message === "") throw refusal(400, "a name and a message are needed");
  return { name, message, at: new Date().toISOString() };
}

function text(value, lengthMax) {
  return typeof value === "string" ? [...value.trim()].slice(0, lengthMax).join("") : "";
}

function clamp(limit) {
  return Math.min(Math.max(Number.parseInt(limit ?? "50", 10) || 50, 1), limitMax);
}

async function readJson(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > bodyBytesMax) throw refusal(413, "that is too long");
    chunks.push(chunk);
  }
  try {
    const body = JSON.parse(Buffer.concat(chunks).toString("utf8"));
    return body !== null && typeof body === "object" ? body : {};
  } catch {
    throw refusal(400, "that is not JSON");
  }
}

function refusal(status, message) {
  return Object.assign(new Error(message), { status });
}

function send(response, status, body) {
  response.writeHead(status, { "content-type": "application/json; charset=utf-8" });
  response.end(JSON.stringify(body));
}
