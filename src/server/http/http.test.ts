/** The HTTP server as its callers meet it: sources, refusals, sessions, logs, what people watch. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import {
  createActiveInstall,
  insertJob,
  type ListeningServer,
  releaseApp,
  startHttp,
  syncNoopApp,
} from "../../../test/http-server.ts";
import { Fault } from "../../model/fault.ts";
import type { JobId } from "../../model/ids.ts";
import { digestOf } from "../../model/json.ts";
import { ApiError, InstallView, LiveView } from "../../protocol/api.ts";
import { signJobToken, type TokenScope } from "../../protocol/job-token.ts";
import { appendEvents } from "../log-chunks.ts";
import { createHttp } from "./http.ts";

let server: ListeningServer;
let installId: string;
let isReachable = true;

before(async () => {
  server = await startHttp({
    registry: {
      forward: (request, response) => response.end(`registry ${request.url}`),
      isReachable: async () => isReachable,
    },
  });
  await syncNoopApp(server, "app", { a: [], b: ["a"] });
  await releaseApp(server, "app");
  installId = await createActiveInstall(server, "app", "acme", { capabilities: [], missing: {} });
});
after(() => server.close());

test("an uploaded source is checked against its digest, kept, and given to the build job that names it", async () => {
  const source = gzipSync("a source");
  const digest = digestOf(source);

  const stored = await upload(digest, source);
  const again = await upload(digest, source);
  const wrong = await upload(digestOf("other"), source);
  const given = await download(digest, [{ kind: "source", name: digest, actions: ["pull"] }]);
  const denied = await download(digest, [
    { kind: "source", name: digestOf("other"), actions: ["pull"] },
  ]);

  assert.deepEqual([stored.status, again.status, wrong.status], [200, 200, 400]);
  assert.deepEqual(await again.json(), {});
  assert.deepEqual(Buffer.from(await given.arrayBuffer()), source);
  assert.equal(denied.status, 403);
  const rows = await server.database.query("select size_bytes from sources");
  assert.deepEqual(rows, [{ size_bytes: source.byteLength }]);
});

test("a source that announces more than the limit is refused before it is read", async () => {
  const answer = await new Promise<number>((resolve, reject) => {
    import("node:http").then(({ request }) => {
      const headers = {
        authorization: `Bearer ${server.token}`,
        "content-length": 300 * 1024 * 1024,
      };
      const call = request(`${server.url}/api/sources/${digestOf("big")}`, {
        method: "POST",
        headers,
      });
      call.on("response", (response) => {
        resolve(response.statusCode ?? 0);
        call.destroy();
      });
      call.on("error", reject);
      call.write("first bytes");
    }, reject);
  });

  assert.equal(answer, 413);
});

test("bad input is refused with everything that is wrong with it", async () => {
  const body = JSON.stringify({ app: 7, name: "Not A Name" });
  const answer = await post("/api/installs", body);
  const { error } = ApiError.parse(await answer.json());

  assert.deepEqual([answer.status, error.code, error.problems.length], [400, "invalid", 2]);
  assert.match(error.message, /body\.app.*body\.name/);
});

test("text that is not JSON, a body too large, and an unknown route are refused in the same form", async () => {
  const answers = [
    [await post("/api/installs", "{"), 400],
    [await post("/api/installs", JSON.stringify({ app: "x".repeat(300_000) })), 413],
    [await server.ask("/api/nothing"), 404],
    [await server.ask("/api/jobs/job_none"), 404],
    [await server.ask("/api/jobs?limit=0"), 400],
    [await server.ask("/api/installs/nobody"), 404],
    [await server.ask("/api/jobs/job_none/logs"), 404],
  ] as const;

  for (const [answer, status] of answers) {
    assert.equal(answer.status, status, answer.url);
    ApiError.parse(await answer.json());
  }
});

test("what nobody foresaw is logged whole and told as an internal error", async () => {
  const logged: unknown[] = [];
  const log = Object.create(server.context.log) as typeof server.context.log;
  log.error = (fields: object) => void logged.push(fields);
  const query = () => Promise.reject(new Error("The password of the database is wrong."));
  const database = { ...server.context.database, query };
  const failing = await createHttp({ ...server.context, log, database });

  const answer = await failing.inject({
    url: "/api/apps",
    headers: { authorization: `Bearer ${server.token}` },
  });
  const { error } = ApiError.parse(answer.json());
  await failing.close();

  assert.deepEqual([answer.statusCode, error.code], [500, "internal"]);
  assert.doesNotMatch(error.message, /password/);
  assert.match(
    JSON.stringify(logged, Object.getOwnPropertyNames(new Error("x")).concat("0", "err")),
    /password/,
  );
});

test("an install is created, shown, deployed and deleted, in the name of the token", async () => {
  const made = await post("/api/installs", JSON.stringify({ app: "app", name: "globex" }));
  const created = InstallView.parse(await made.json());
  const deployed = await post("/api/installs/globex/deploy", "");
  const removed = await server.ask("/api/installs/globex", { method: "DELETE" });

  assert.equal(created.state, "provisioning");
  assert.equal(InstallView.parse(await deployed.json()).deploy, 2);
  assert.equal(InstallView.parse(await removed.json()).state, "deleting");
  const events = await server.database.query<{ actor: string }>(
    "select distinct actor from events where install_id = $1 and kind like 'install.%'",
    [created.id],
  );
  assert.deepEqual(events, [{ actor: `token:${server.tokenId}` }]);
});

test("a pasted token becomes a cookie that opens the pages, changes nothing from other sites, and ends", async () => {
  const away = await fetch(`${server.url}/`, {
    redirect: "manual",
    headers: { accept: "text/html" },
  });
  const cookie = await signIn();
  const inside = await withCookie(cookie, "/", { headers: { accept: "text/html" } });
  const target = "/api/installs/acme/deploy";
  const foreign = await withCookie(cookie, target, {
    method: "POST",
    headers: { origin: "https://evil.example", "sec-fetch-site": "cross-site" },
  });
  const unknown = await withCookie(cookie, target, { method: "POST" });
  const own = await withCookie(cookie, target, { method: "POST", headers: { origin: server.url } });
  const out = await withCookie(cookie, "/sign-out", {
    method: "POST",
    headers: { origin: server.url },
  });
  const after = await withCookie(cookie, "/api/apps");

  assert.deepEqual([away.status, away.headers.get("location")], [303, "/sign-in"]);
  assert.equal(inside.status, 200);
  assert.match(inside.headers.get("content-security-policy") ?? "", /script-src 'nonce-[^']+';/);
  assert.deepEqual([foreign.status, unknown.status, own.status], [403, 403, 200]);
  assert.deepEqual([out.status, after.status], [303, 401]);
});

test("the session cookie is out of reach for scripts and for other sites", async () => {
  const answer = await form("/sign-in", { token: server.token });
  const cookie = answer.headers.get("set-cookie") ?? "";

  assert.deepEqual([answer.status, answer.headers.get("location")], [303, "/"]);
  assert.match(cookie, /HttpOnly/);
  assert.match(cookie, /SameSite=Strict/);
  assert(!cookie.includes(server.token));
});

test("a failed sign-in is told in the page and in an event without the secret; a flood of them is counted", async () => {
  const secret = "lft_a-secret-that-somebody-mistyped";
  const answer = await form("/sign-in", { token: secret });
  for (let index = 0; index < 60; index++) await form("/sign-in", { token: `${secret}${index}` });

  assert.equal(answer.status, 401);
  assert.match(await answer.text(), /not known, or has expired/);
  const events = await server.database.query<{ data: { reason: string; route: string } }>(
    "select data from events where kind = 'request.refused'",
  );
  assert(events.length >= 1 && events.length <= 30, String(events.length));
  assert(events.some(({ data }) => data.reason.startsWith("sign-in") && data.route === "/sign-in"));
  assert(!JSON.stringify(events).includes("mistyped"));
});

test("enrolment codes are not guessed: after too many refusals a caller must wait", async () => {
  const { publicKey } = await import("node:crypto").then(({ generateKeyPairSync }) =>
    generateKeyPairSync("ed25519"),
  );
  const body = JSON.stringify({ publicKey: publicKey.export({ format: "jwk" }).x });
  const statuses: number[] = [];
  for (let index = 0; index < 35; index++) {
    const answer = await fetch(`${server.url}/api/enrol`, {
      method: "POST",
      headers: {
        authorization: `Enrolment lfe_guess${index}.x`,
        "content-type": "application/json",
      },
      body,
    });
    statuses.push(answer.status);
  }

  assert.equal(statuses[0], 401);
  assert.equal(statuses.at(-1), 503);
});

test("the lines of a running job arrive as they come, and the answer ends with the job", async () => {
  const job = { component: "a", operation: "apply", state: "running" };
  const jobId = (await insertJob(server, installId, job)) as JobId;
  const key = { jobId, epoch: { generation: 1, n: 1 } };
  await appendEvents(server.context, key, [line(1)]);
  const answer = await server.ask(`/api/jobs/${jobId}/logs?follow=1`);
  const reader = readLines(answer);

  const first = await reader.next();
  await appendEvents(server.context, key, [line(2)]);
  const second = await reader.next();
  await appendEvents(server.context, key, [line(3)]);
  await endJob(jobId);
  const rest: unknown[] = [];
  for await (const event of reader) rest.push(event);

  assert.equal(answer.headers.get("content-type"), "application/x-ndjson");
  assert.deepEqual([first.value, second.value, ...rest], [line(1), line(2), line(3)]);
});

test("without follow the answer ends at once, after the number that was asked for", async () => {
  const job = { component: "b", operation: "apply", state: "running" };
  const jobId = (await insertJob(server, installId, job)) as JobId;
  await appendEvents(server.context, { jobId, epoch: { generation: 1, n: 1 } }, [line(1), line(2)]);

  const answer = await server.ask(`/api/jobs/${jobId}/logs?after=1`);

  assert.equal(await answer.text(), `${JSON.stringify(line(2))}\n`);
});

test("a reader that goes away leaves nobody listening", async () => {
  const job = { component: null, operation: "destroy", state: "running" };
  const jobId = await insertJob(server, installId, job);
  let listening = 0;
  const { wake } = server.context;
  const listen = wake.listen;
  wake.listen = (topic, onNotice) => {
    listening++;
    const stop = listen(topic, onNotice);
    return () => {
      listening--;
      stop();
    };
  };
  const gone = new AbortController();
  const answers = await Promise.all([
    server.ask(`/api/jobs/${jobId}/logs?follow=1`, { signal: gone.signal }),
    server.ask("/api/live", { signal: gone.signal }),
  ]);
  for (const answer of answers) await answer.body?.getReader().read();
  assert.equal(listening, 2);

  gone.abort();

  await eventually(() => listening === 0);
  wake.listen = listen;
});

test("whoever watches gets the state at once, and again when it has changed", async () => {
  const gone = new AbortController();
  const answer = await server.ask("/api/live", { signal: gone.signal });
  const events = readEvents(answer);
  const first = LiveView.parse((await events.next()).value);

  await server.database.query("insert into apps (id, name) values ('app_x', 'unseen')");
  await server.database.query("update installs set deploy = deploy + 10 where id = $1", [
    installId,
  ]);
  server.context.wake.notify("live");
  const second = LiveView.parse((await events.next()).value);
  gone.abort();

  const deployOf = (view: LiveView) =>
    view.installs.find(({ id }) => id === installId)?.deploy ?? 0;
  assert.equal(deployOf(second), deployOf(first) + 10);
});

test("a server is ready when its database and its registry answer", async () => {
  const ready = await fetch(`${server.url}/readyz`);
  isReachable = false;
  const unready = await fetch(`${server.url}/readyz`);
  isReachable = true;

  assert.deepEqual([ready.status, unready.status], [200, 503]);
  assert.match(await unready.text(), /registry does not answer/);
});

test("requests under /v2/ reach the registry as they are", async () => {
  const answers = await Promise.all(
    ["/v2/", "/v2/app/a/manifests/x?y=1"].map((path) => fetch(`${server.url}${path}`)),
  );

  assert.deepEqual(await Promise.all(answers.map((answer) => answer.text())), [
    "registry /v2/",
    "registry /v2/app/a/manifests/x?y=1",
  ]);
  assert.equal((await fetch(`${server.url}/v2x`)).status, 404);
});

test("the metrics tell of requests, agents and jobs", async () => {
  await insertJob(server, installId, { component: "a", operation: "plan", state: "queued" });

  const text = await (await server.ask("/metrics")).text();

  assert.match(text, /landfall_http_request_duration_seconds_count\{.*route="\/readyz"/);
  assert.match(text, /landfall_jobs\{state="queued"\} [1-9]/);
  assert.match(text, /landfall_event_loop_delay_seconds\{quantile="0.99"\}/);
});

test("every answer forbids framing, sniffing and foreign content", async () => {
  for (const path of ["/sign-in", "/healthz", "/api/apps", "/nowhere"]) {
    const { headers } = await fetch(`${server.url}${path}`);
    assert.equal(headers.get("x-frame-options"), "DENY", path);
    assert.equal(headers.get("x-content-type-options"), "nosniff", path);
    assert.match(headers.get("content-security-policy") ?? "", /default-src 'none'/, path);
  }
});

function post(path: string, body: string): Promise<Response> {
  return server.ask(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
  });
}

function form(path: string, fields: Record<string, string>): Promise<Response> {
  const body = new URLSearchParams(fields);
  return fetch(`${server.url}${path}`, { method: "POST", redirect: "manual", body });
}

function upload(digest: string, body: Uint8Array<ArrayBuffer>): Promise<Response> {
  return server.ask(`/api/sources/${digest}`, { method: "POST", body });
}

async function download(digest: string, access: TokenScope[]): Promise<Response> {
  const token = await signJobToken(server.context.keys.signing, {
    job: { jobId: "job_000000000000000000000000" as JobId, epoch: { generation: 1, n: 1 } },
    tokenId: "one",
    access,
    now: new Date(),
    minutes: 5,
  });
  return server.ask(`/api/sources/${digest}`, { headers: { authorization: `Bearer ${token}` } });
}

async function signIn(): Promise<string> {
  const answer = await post("/sign-in", JSON.stringify({ token: server.token }));
  return answer.headers.get("set-cookie")?.split(";")[0] ?? "";
}

function withCookie(cookie: string, path: string, init: RequestInit = {}): Promise<Response> {
  const headers = { cookie, ...init.headers };
  return fetch(`${server.url}${path}`, { redirect: "manual", ...init, headers });
}

function line(seq: number) {
  const at = "2030-01-01T00:00:00Z";
  return { seq, at, type: "log", stream: "stdout", line: `line ${seq}` } as const;
}

function endJob(jobId: string): Promise<object[]> {
  return server.database.query(
    `update jobs set state = 'succeeded', agent_id = null, lease_expires_at = null, finished_at = now(),
       outcome = '{"status": "succeeded"}' where id = $1`,
    [jobId],
  );
}

async function* readLines(answer: Response): AsyncGenerator<unknown> {
  for await (const text of split(answer, "\n")) yield JSON.parse(text);
}

async function* readEvents(answer: Response): AsyncGenerator<unknown> {
  for await (const text of split(answer, "\n\n")) {
    if (text.startsWith("data: ")) yield JSON.parse(text.slice(6));
  }
}

async function* split(answer: Response, separator: string): AsyncGenerator<string> {
  if (!answer.body) throw new Fault("invalid", "Expected a body.");
  let rest = "";
  for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
    const parts = (rest + text).split(separator);
    rest = parts.pop() ?? "";
    yield* parts.filter((part) => part.trim() !== "");
  }
}

async function eventually(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 5000;
  while (!condition()) {
    assert(Date.now() < deadline, "The condition did not come true in time.");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
