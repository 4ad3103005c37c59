/** The client against a real HTTP server on loopback that answers as a test needs. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { test } from "node:test";
import { isFault } from "../model/fault.ts";
import { createApiClient } from "./api-client.ts";
import { sampleInstall } from "./install-view-samples.ts";

async function serve(
  answer: RequestListener,
): Promise<{ url: string; [Symbol.asyncDispose](): Promise<void> }> {
  const server = createServer(answer).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert(address && typeof address === "object");
  return {
    url: `http://127.0.0.1:${address.port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}

test("the token travels in the header and in no URL", async () => {
  const seen: { url: string | undefined; authorization: string | undefined }[] = [];
  await using server = await serve((request, response) => {
    seen.push({ url: request.url, authorization: request.headers.authorization });
    response.end(JSON.stringify({ installs: [] }));
  });

  await createApiClient({ url: server.url, token: "lft_secret" }).installs();

  assert.deepEqual(seen, [{ url: "/api/installs", authorization: "Bearer lft_secret" }]);
});

test("a server that is away is named, with what to do", async () => {
  const closed = await serve(() => {});
  const { url } = closed;
  await closed[Symbol.asyncDispose]();

  await assert.rejects(createApiClient({ url, token: "t" }).installs(), (error: unknown) => {
    assert(isFault(error, "unavailable"));
    assert.match(error.message, /ECONNREFUSED.*landfall dev/);
    return true;
  });
});

test("a refusal keeps its code, message and problems", async () => {
  const problem = {
    severity: "error",
    message: "no such thing",
    position: { file: "a.toml", line: 2, column: 1 },
  };
  await using server = await serve((_request, response) => {
    response.statusCode = 409;
    response.end(
      JSON.stringify({ error: { code: "conflict", message: "Expected x.", problems: [problem] } }),
    );
  });

  await assert.rejects(
    createApiClient({ url: server.url, token: "t" }).deploy("demo"),
    (error: unknown) => {
      assert(isFault(error, "conflict"));
      assert.equal(error.message, "Expected x.");
      assert.deepEqual(error.problems, [problem]);
      return true;
    },
  );
});

test("something that is no Landfall server is told from one", async () => {
  await using server = await serve((request, response) => {
    response.statusCode = request.url === "/api/agents" ? 502 : 200;
    response.end("<html>");
  });
  const client = createApiClient({ url: server.url, token: "t" });

  await assert.rejects(client.installs(), /understands/);
  await assert.rejects(client.agents(), /HTTP 502/);
});

test("the token is never sent on to where a redirect points", async () => {
  let reached = false;
  await using other = await serve((_request, response) => {
    reached = true;
    response.end("{}");
  });
  await using server = await serve((_request, response) => {
    response.writeHead(302, { location: other.url }).end();
  });

  await assert.rejects(createApiClient({ url: server.url, token: "t" }).installs());
  assert.equal(reached, false);
});

test("log lines come while the job runs, and the connection ends when the reader does", async () => {
  const { promise: ended, resolve: tellEnded } = Promise.withResolvers<void>();
  await using server = await serve((request, response) => {
    assert.equal(request.url, "/api/jobs/job_1/logs?after=4&follow=true");
    response.write(
      `${JSON.stringify({ seq: 5, at: "now", type: "log", stream: "stdout", line: "hello" })}\n`,
    );
    response.on("close", tellEnded);
  });
  const client = createApiClient({ url: server.url, token: "t" });

  for await (const event of client.logs("job_1", { after: 4, follow: true })) {
    assert.equal(event.type === "log" && event.line, "hello");
    break;
  }

  await ended;
});

test("live views are checked and given one by one", async () => {
  await using server = await serve((_request, response) => {
    const view = { installs: [sampleInstall()], jobs: [], agents: [], builds: [] };
    response.end(`: hello\n\ndata: ${JSON.stringify(view)}\n\n`);
  });

  const views = await Array.fromAsync(createApiClient({ url: server.url, token: "t" }).live());

  assert.equal(views[0]?.installs[0]?.name, "demo");
});
