/** Tokens on a real database: what is kept of them, and when they stop to work. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { createServerContext, type TestServer } from "../../test/server-context.ts";
import { createSession, createToken, createTokenFinder, findToken, revokeToken } from "./tokens.ts";

let server: TestServer;
before(async () => {
  server = await createServerContext();
});
after(() => server.close());

test("a token is found by its secret, and the secret is in no table", async () => {
  const { id, secret } = await createToken(server.context, "server", {
    name: "mine",
    kind: "api",
    days: 1,
  });

  const found = await findToken(server.context, "api", secret);

  assert.equal(found?.id, id);
  assert.match(secret, /^lft_/);
  const rows = await server.database.query<{ text: string }>(
    "select t::text as text from tokens t union all select e::text from events e",
  );
  assert(rows.some(({ text }) => text.includes("token.created") && text.includes(id)));
  assert(!rows.some(({ text }) => text.includes(secret.slice(4))));
});

test("an unknown secret, one of another kind, and a session used as a token are nobody's", async () => {
  const { secret } = await createToken(server.context, "server", {
    name: "x",
    kind: "api",
    days: 1,
  });
  const token = await findToken(server.context, "api", secret);
  assert(token);
  const session = await createSession(server.context, token, 7);

  assert.equal(await findToken(server.context, "api", `${secret.slice(0, -1)}!`), null);
  assert.equal(await findToken(server.context, "api", `lft_${"A".repeat(43)}`), null);
  assert.equal(await findToken(server.context, "session", secret), null);
  assert.equal(await findToken(server.context, "api", session.secret), null);
  assert.equal((await findToken(server.context, "session", session.secret))?.id, session.id);
});

test("a token ends when its time is over, from memory too, and a session never outlives its token", async () => {
  let now = new Date("2030-01-01T00:00:00Z");
  const context = { ...server.context, now: () => now };
  const { secret } = await createToken(context, "server", { name: "x", kind: "api", days: 1 });
  const finder = createTokenFinder(context);
  const token = await finder.find("api", secret);
  assert(token);
  const session = await createSession(context, token, 7);
  assert.deepEqual(session.expiresAt, token.expiresAt);
  now = new Date("2030-01-01T23:59:59Z");
  assert(await finder.find("api", secret));

  now = new Date("2030-01-02T00:00:01Z");

  assert.equal(await finder.find("api", secret), null);
  assert.equal(await finder.find("session", session.secret), null);
});

test("a revoked token ends within seconds even where it is remembered, with the sessions it opened", async () => {
  let now = new Date();
  const context = { ...server.context, now: () => now };
  const { id, secret } = await createToken(context, "server", { name: "x", kind: "api", days: 1 });
  const [here, elsewhere] = [createTokenFinder(context), createTokenFinder(context)];
  const token = await here.find("api", secret);
  assert(token && (await elsewhere.find("api", secret)));
  const session = await createSession(context, token, 7);

  await revokeToken(context, "server", id);
  here.forget(id);

  assert.equal(await here.find("api", secret), null);
  assert.equal(await here.find("session", session.secret), null);
  now = new Date(now.getTime() + 3001);
  assert.equal(await elsewhere.find("api", secret), null);
});
