/**
 * The guestbook's page.
 *
 *   GET  /            the page; it is shown whether or not the others answer
 *   POST /sign        the form
 *   GET  /healthz     is this program up
 *   GET  /api/status  asks the database and the greeter, and tells what it knows
 */
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createNeighbours } from "./neighbours.mjs";
import { renderPage } from "./page.mjs";
import { readSettings } from "./settings.mjs";

const formBytesMax = 16_384;
const { version } = JSON.parse(readFileSync(new URL("./package.json", import.meta.url), "utf8"));
const settings = readSettings(process.env, version);
const neighbours = createNeighbours(settings);
const securityHeaders = {
  "content-security-policy":
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cache-control": "no-store",
};

const server = createServer((request, response) => {
  handle(request, response).catch((error) => {
    console.error(error);
    if (!response.headersSent) send(response, 500, "text/plain", "Something went wrong.");
    else response.destroy();
  });
});
server.requestTimeout = 10_000;
server.listen(settings.port, "127.0.0.1", () => {
  console.log(`guestbook ${version} on http://127.0.0.1:${server.address().port}`);
});

process.on("SIGTERM", () => {
  server.close(() => process.exit(0));
  server.closeAllConnections();
});

async function handle(request, response) {
  const url = new URL(request.url, "http://web");
  const route = `${request.method} ${url.pathname}`;
  if (route === "GET /healthz") sendJson(response, 200, { ok: true });
  else if (route === "GET /api/status") await sendStatus(response);
  else if (route === "POST /sign") await sign(request, response);
  else if (route === "GET /") await sendPage(response, url.searchParams.get("note"));
  else send(response, 404, "text/plain", "There is nothing here. The guestbook is at /");
}

async function sendPage(response, note) {
  const [book, greeting] = await Promise.all([neighbours.readBook(), neighbours.greetVisitor()]);
  const html = renderPage({ settings, book, greeting, note, now: new Date() });
  send(response, 200, "text/html", html);
}

async function sendStatus(response) {
  const [book, greeting] = await Promise.all([neighbours.readBook(), neighbours.greet()]);
  const isUp = { database: book !== null, greeter: greeting !== null, web: true };
  const components = Object.fromEntries(
    settings.gave.map(({ name, outputs }) => [
      name,
      {
        ...(name in isUp ? { ok: isUp[name] } : {}),
        outputs: Object.fromEntries(
          outputs.map((output) => [output.name, output.secret ? "kept secret" : output.value]),
        ),
      },
    ]),
  );
  const ok = book !== null && greeting !== null;
  sendJson(response, ok ? 200 : 503, {
    ok,
    install: settings.installName,
    version,
    entries: book?.total ?? null,
    visitors: greeting?.visitors ?? null,
    components,
  });
}

async function sign(request, response) {
  // A form on somebody else's page must not sign in a visitor's name.
  if (request.headers["sec-fetch-site"] === "cross-site") {
    send(response, 403, "text/plain", "Please sign on the guestbook's own page.");
    return;
  }
  const form = new URLSearchParams(await readForm(request));
  const note = await neighbours.sign(form.get("name") ?? "", form.get("message") ?? "");
  response.writeHead(303, { location: `/?note=${note}#book`, "cache-control": "no-store" });
  response.end();
}

async function readForm(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > formBytesMax) return "";
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function sendJson(response, status, body) {
  send(response, status, "application/json", `${JSON.stringify(body, null, 2)}\n`);
}

function send(response, status, type, body) {
  response.writeHead(status, { ...securityHeaders, "content-type": `${type}; charset=utf-8` });
  response.end(body);
}
