/** Enrolment against a real PostgreSQL: a code works once, for a while, for one key. */
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { after, before, test } from "node:test";
import { createServerContext, type TestServer } from "../../test/server-context.ts";
import { Keyset } from "../protocol/documents.ts";
import {
  decodePublicKey,
  encodePublicKey,
  keyIdOf,
  verifyDocument,
} from "../protocol/signed-document.ts";
import { createEnrolmentCode, enrolAgent } from "./enrolment.ts";

let server: TestServer;
before(async () => {
  server = await createServerContext();
});
after(() => server.close());

test("a fresh code gives an identity and the pinned root key, which verifies the keyset", async () => {
  const { code } = await createCode();

  const answer = await enrolAgent(server.context, code, createKey());

  const root = decodePublicKey(answer.rootPublicKey);
  assert.equal(code.split(".")[1], keyIdOf(root));
  const { payload } = await verifyDocument("landfall-keyset", Keyset, answer.keyset, () => root);
  assert.deepEqual(payload.keys, server.context.keys.publicKeys);
});

test("a wrong enrolment code is refused, recorded, and changes nothing", async () => {
  const agents = await countAgents();

  await assert.rejects(enrolAgent(server.context, "lfe_wrong.x", createKey()), {
    code: "unauthorized",
    message: /not known.*landfall agents code/,
  });

  assert.equal(await countAgents(), agents);
  assert.match(await lastRefusal(), /not known/);
});

test("a used enrolment code is refused to any other key, and answered again to its own", async () => {
  const { code } = await createCode();
  const key = createKey();
  const first = await enrolAgent(server.context, code, key);

  await assert.rejects(enrolAgent(server.context, code, createKey()), { message: /used already/ });

  assert.equal((await enrolAgent(server.context, code, key)).agentId, first.agentId);
});

test("an expired enrolment code is refused", async () => {
  const { code } = await createCode();
  await server.database.query(
    "update enrolment_codes set expires_at = clock_timestamp() - interval '1 second'",
  );

  await assert.rejects(enrolAgent(server.context, code, createKey()), { message: /has expired/ });
  assert.match(await lastRefusal(), /has expired/);
});

test("an install has one agent: a second code does not give it another", async () => {
  await server.database.query("insert into apps (id, name) values ('app_x', 'x')");
  await server.database.query(
    "insert into installs (id, app_id, name, sandbox_type) values ('ins_x', 'app_x', 'x', 'local')",
  );
  const codes = await Promise.all([1, 2].map(() => createCode("x")));
  await enrolAgent(server.context, codes[0]?.code ?? "", createKey());

  await assert.rejects(enrolAgent(server.context, codes[1]?.code ?? "", createKey()), {
    message: /has one agent/,
  });
});

test("fifty enrolments with one code at once make one agent", async () => {
  const { code } = await createCode();
  const agents = await countAgents();

  const results = await Promise.allSettled(
    Array.from({ length: 50 }, () => enrolAgent(server.context, code, createKey())),
  );

  assert.equal(results.filter((result) => result.status === "fulfilled").length, 1);
  assert.equal(await countAgents(), agents + 1);
});

test("the code itself is nowhere in the database", async () => {
  const { code } = await createCode();
  const secret = code.slice(4).split(".")[0];

  const rows = await server.database.query<{ text: string }>(
    "select enrolment_codes::text as text from enrolment_codes union all select events::text from events",
  );

  assert(!rows.some((row) => row.text.includes(secret ?? "")));
});

function createCode(installName: string | null = null) {
  const role = installName ? "install" : "build";
  return createEnrolmentCode(server.context, "token:test", { role, installName });
}

function createKey(): string {
  return encodePublicKey(generateKeyPairSync("ed25519").publicKey);
}

async function countAgents(): Promise<number> {
  const [row] = await server.database.query<{ count: number }>("select count(*) from agents");
  return row?.count ?? 0;
}

async function lastRefusal(): Promise<string> {
  const [row] = await server.database.query<{ reason: string }>(
    "select data ->> 'reason' as reason from events where kind = 'enrolment.refused' order by id desc limit 1",
  );
  return row?.reason ?? "";
}
