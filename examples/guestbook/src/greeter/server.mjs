/**
 * Finds a word for each visitor.
 *
 *   GET  /healthz
 *   GET  /greeting    { greeting, visitors }
 *   POST /greeting    the same, and counts the visitor
 */
import { createServer } from "node:http";

const { PORT = "0", DATABASE_URL, DATABASE_PASSWORD } = process.env;
const databaseTimeoutMs = 2000;
const asides = [
  "Lovely to have you.",
  "The kettle is on.",
  "Leave a line before you go?",
  "You have picked a good moment.",
  "Make yourself at home.",
];

const server = createServer(async (request, response) => {
  const route = `${request.method} ${request.url}`;
  if (route === "GET /healthz") send(response, 200, { ok: true });
  else if (route === "GET /greeting" || route === "POST /greeting") {
    try {
      const visitors = await count(request.method);
      send(response, 200, { greeting: greet(new Date(), visitors), visitors });
    } catch (error) {
      console.error(`the database did not answer: ${error.message}`);
      send(response, 503, { error: "the database does not answer" });
    }
  } else send(response, 404, { error: "no such thing" });
});
server.listen(Number(PORT), "127.0.0.1", () => {
  console.log(`listening on 127.0.0.1:${server.address().port}`);
});

process.on("SIGTERM", () => {
  server.close(() => process.exit(0));
  server.closeAllConnections();
});

async function count(method) {
  const response = await fetch(new URL("/counters/visitors", DATABASE_URL), {
    method,
    headers: { authorization: `Bearer ${DATABASE_PASSWORD}` },
    signal: AbortSignal.timeout(databaseTimeoutMs),
  });
  if (!response.ok) throw new Error(`expected 200, got ${response.status}`);
  return (await response.json()).value;
}

function greet(now, visitors) {
  const hour = now.getHours();
  const time =
    hour < 5
      ? "Good night"
      : hour < 12
        ? "Good morning"
        : hour < 18
          ? "Good afternoon"
          : "Good evening";
  return `${time}. ${asides[visitors % asides.length]}`;
}

function send(response, status, body) {
  response.writeHead(status, { "content-type": "application/json; charset=utf-8" });
  response.end(JSON.stringify(body));
}
