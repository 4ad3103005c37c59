/**
 * Brings the database to the current schema and writes the first entries, each under an id of its own,
 * so that a second run finds them there.
 */
import { appendFileSync } from "node:fs";

const { DATABASE_URL, DATABASE_PASSWORD, INSTALL_NAME = "here", LANDFALL_OUTPUTS } = process.env;
const schema = 1;
const welcome = [
  {
    id: "welcome-1",
    name: "Ada",
    message:
      "First! I watched the components come up one after another, and then there was a page.",
  },
  {
    id: "welcome-2",
    name: "Grace",
    message: `Greetings to everyone at ${INSTALL_NAME}. Pull the server's plug: this page will not even blink.`,
  },
  {
    id: "welcome-3",
    name: "The migration",
    message:
      "I put these three here through the database's own API, with a password nobody has seen.",
  },
];

await put("/schema", { version: schema });
for (const { id, ...entry } of welcome) await put(`/entries/${id}`, entry);
appendFileSync(LANDFALL_OUTPUTS, `${JSON.stringify({ schema, entries: welcome.length })}\n`);
console.log(`schema ${schema}, ${welcome.length} entries in place`);

async function put(path, body) {
  const response = await fetch(new URL(path, DATABASE_URL), {
    method: "PUT",
    headers: { authorization: `Bearer ${DATABASE_PASSWORD}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(10_000),
  });
  if (!response.ok) throw new Error(`PUT ${path}: expected 2xx, got ${response.status}`);
}
