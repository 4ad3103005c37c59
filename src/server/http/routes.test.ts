/** Every route of the table, asked by every kind of caller who must not pass, and by one who may. */
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { after, before, test } from "node:test";
import {
  createActiveInstall,
  insertJob,
  type ListeningServer,
  releaseApp,
  startHttp,
  syncNoopApp,
} from "../../../test/http-server.ts";
import type { JobId } from "../../model/ids.ts";
import { digestOf } from "../../model/json.ts";
import { ApiError } from "../../protocol/api.ts";
import { signJobToken } from "../../protocol/job-token.ts";
import { encodePublicKey } from "../../protocol/signed-document.ts";
import { createToken } from "../tokens.ts";
import type { Route } from "./route.ts";
import { routes } from "./routes.ts";

let server: ListeningServer;
let jobId: string;
const agentId = "agt_0123456789abcdefghjkmnpq";
const digest = digestOf("source");
const publicKey = encodePublicKey(generateKeyPairSync("ed25519").publicKey);

before(async () => {
  server = await startHttp();
  await syncNoopApp(server, "app", { a: [], b: ["a"] });
  await releaseApp(server, "app");
  const id = await createActiveInstall(server, "app", "acme", { capabilities: [], missing: {} });
  jobId = await insertJob(server, id, {
    component: "a",
    operation: "apply",
    state: "failed",
    message: "No.",
  });
  await server.database.query(
    "insert into agents (id, role, install_id, public_key) values ($1, 'install', $2, 'key')",
    [agentId, id],
  );
});
after(() => server.close());

test("only health, sign-in, enrolment and a build job's source are open to callers without a token", () => {
  const open = routes.filter((route) => route.caller !== "token");

  assert.deepEqual(
    open.map(({ method, path, caller }) => `${method} ${path} ${caller}`),
    [
      "GET /api/sources/:digest job-token",
      "POST /api/enrol enrolment-code",
      "GET /healthz anyone",
      "GET /readyz anyone",
      "GET /sign-in anyone",
      "POST /sign-in anyone",
    ],
  );
});

for (const route of routes.filter(({ caller }) => caller !== "anyone")) {
  test(`${route.method} ${route.path} refuses a caller without a token, with a wrong one, with an expired one`, async () => {
    const refused = [
      {},
      { authorization: "Bearer" },
      { authorization: `Bearer lft_${"x".repeat(43)}` },
      { authorization: `Basic ${server.token}` },
      { authorization: `Enrolment lfe_wrong.${server.context.keys.rootKeyId}` },
      { authorization: `Bearer ${await expiredToken()}` },
      { authorization: `Bearer ${await expiredJobToken()}` },
      { cookie: `landfall_session=${server.token}` },
      { cookie: "landfall_session=lfs_wrong" },
    ];

    for (const headers of refused) {
      const answer = await ask(route, headers);
      assert.equal(answer.status, 401, JSON.stringify(headers));
      assert.equal(ApiError.parse(await answer.json()).error.code, "unauthorized");
    }
  });
}

test("an API token opens neither a build job's source nor the door of agents", async () => {
  for (const route of routes.filter(({ caller }) => /job-token|enrolment/.test(caller))) {
    const answer = await ask(route, { authorization: `Bearer ${server.token}` });
    assert.equal(answer.status, 401, route.path);
  }
});

test("every JSON route that only reads answers in the form that it documents", async () => {
  const read = routes.filter(({ method, answer, answerType }) => {
    return method === "GET" && answer !== null && answerType === "application/json";
  });
  assert(read.length >= 14);

  for (const route of read) {
    const answer = await ask(route, { authorization: `Bearer ${server.token}` });
    assert.equal(answer.status, 200, route.path);
    const body: unknown = await answer.json();
    assert.deepEqual(route.answer?.parse(body), body, route.path);
  }
});

test("the description lists every route of the table, with references that lead somewhere", async () => {
  const answer = await server.ask("/openapi.json");
  const text = await answer.text();
  const document = JSON.parse(text) as {
    openapi: string;
    paths: Record<string, Record<string, object>>;
    components: { schemas: Record<string, object> };
  };

  assert.equal(document.openapi, "3.1.0");
  for (const { method, path } of routes) {
    const described = document.paths[path.replace(/:(\w+)/g, "{$1}")];
    assert(described?.[method.toLowerCase()], `${method} ${path}`);
  }
  for (const [, name = ""] of text.matchAll(/"\$ref":"#\/components\/schemas\/([^"]+)"/g)) {
    assert(Object.hasOwn(document.components.schemas, name), name);
  }
});

test("the documentation page has every route, and needs nothing from elsewhere", async () => {
  const answer = await server.ask("/docs");
  const page = await answer.text();

  for (const { path } of routes) assert(page.includes(path.replace(/:(\w+)/g, "{$1}")), path);
  assert.doesNotMatch(page, /(?:src|href)="(?:https?:)?\/\//);
});

function ask(route: Route, headers: Record<string, string>): Promise<Response> {
  const path = route.path
    .replace(":digest", digest)
    .replace(":name", "acme")
    .replace(":id", route.group === "agents" ? agentId : jobId);
  const body = route.method === "POST" ? JSON.stringify({ publicKey }) : null;
  return fetch(`${server.url}${path}`, {
    method: route.method,
    redirect: "manual",
    headers: { ...(body ? { "content-type": "application/json" } : {}), ...headers },
    body,
  });
}

async function expiredToken(): Promise<string> {
  const { id, secret } = await createToken(server.context, "server", {
    name: "x",
    kind: "api",
    days: 1,
  });
  await server.database.query(
    "update tokens set expires_at = now() - interval '1 second' where id = $1",
    [id],
  );
  return secret;
}

function expiredJobToken(): Promise<string> {
  return signJobToken(server.context.keys.signing, {
    job: { jobId: jobId as JobId, epoch: { generation: 1, n: 1 } },
    tokenId: "one",
    access: [{ kind: "source", name: digest, actions: ["pull"] }],
    now: new Date(Date.now() - 3_600_000),
    minutes: 5,
  });
}
