/** An app directory on disk, against a server that remembers what it was sent. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { after, before, test } from "node:test";
import { isFault } from "../model/fault.ts";
import { digestOf } from "../model/json.ts";
import { SyncRequest } from "../protocol/api.ts";
import { createApiClient } from "./api-client.ts";
import { packApp, syncApp } from "./sync-app.ts";

let folder = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "landfall-sync-"));
  const app = join(folder, "app");
  await mkdir(join(app, "components"), { recursive: true });
  await writeFile(join(app, "metadata.toml"), 'version = "v2"\nname = "app"\n');
  await writeFile(join(app, "sandbox.toml"), 'type = "local"\n');
  for (const name of ["a", "b", "c"]) {
    await mkdir(join(app, "src", name), { recursive: true });
    await writeFile(join(app, "src", name, "main.mjs"), `console.log("${name}")\n`);
    const lines = [
      `name = "${name}"`,
      'type = "job"',
      'command = ["node", "main.mjs"]',
      "[source]",
      `path = "./src/${name}"`,
    ];
    await writeFile(join(app, "components", `${name}.toml`), lines.join("\n"));
  }
});
after(() => rm(folder, { recursive: true }));

/** Takes sources and configurations as the real one does: it names the first source that it misses. */
async function startServer() {
  const had = new Set<string>();
  const asked: string[] = [];
  const server = createServer(async (request, response) => {
    const body = await buffer(request);
    asked.push(request.url?.replace(/sha256:.*/, "…") ?? "");
    if (request.url?.startsWith("/api/sources/")) {
      assert.equal(request.url, `/api/sources/${digestOf(body)}`);
      had.add(digestOf(body));
      return response.end("{}");
    }
    const { sources } = SyncRequest.parse(JSON.parse(body.toString()));
    const missing = Object.values(sources).find(({ digest }) => !had.has(digest));
    response.statusCode = missing ? 400 : 200;
    const message = `Expected the source (${missing?.digest}) to be uploaded first.`;
    response.end(
      JSON.stringify(
        missing
          ? { error: { code: "invalid", message, problems: [] } }
          : { app: "app", configNumber: 1, changed: true, builds: [], releaseNumber: null },
      ),
    );
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert(address && typeof address === "object");
  return {
    asked,
    client: createApiClient({ url: `http://127.0.0.1:${address.port}`, token: "t" }),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}

test("an app sends what the server lacks, once; unchanged, it costs one request", async () => {
  await using server = await startServer();
  const app = await packApp(join(folder, "app"), folder);

  const first = await syncApp(server.client, app);
  const requests = server.asked.splice(0);
  const second = await syncApp(server.client, app);

  assert.equal(first.uploaded, 3);
  assert.equal(requests.filter((url) => url === "/api/sources/…").length, 3);
  assert.equal(second.uploaded, 0);
  assert.deepEqual(server.asked, ["/api/apps/sync"]);
});

test("a change in one component uploads that one alone", async () => {
  await using server = await startServer();
  await syncApp(server.client, await packApp(join(folder, "app"), folder));
  const copy = join(folder, "changed");
  await cp(join(folder, "app"), copy, { recursive: true });
  await writeFile(join(copy, "src", "b", "main.mjs"), "// another\n");

  const { uploaded } = await syncApp(server.client, await packApp(copy, folder));

  assert.equal(uploaded, 1);
});

test("the same app has the same digests wherever it lies", async () => {
  const copy = join(folder, "elsewhere");
  await cp(join(folder, "app"), copy, { recursive: true });

  const [one, two] = await Promise.all([
    packApp(join(folder, "app"), folder),
    packApp(copy, folder),
  ]);

  const digests = (app: typeof one) => [...app.sources.values()].map(({ digest }) => digest);
  assert.deepEqual(digests(one), digests(two));
});

test("problems are told together, with paths as one would type them here", async () => {
  const bad = join(folder, "bad");
  await cp(join(folder, "app"), bad, { recursive: true });
  await writeFile(join(bad, "components", "a.toml"), 'name = "a"\ntype = "proces"\n');
  await writeFile(join(bad, "components", "b.toml"), "name = \n");

  await assert.rejects(packApp(bad, folder), (error: unknown) => {
    assert(isFault(error, "invalid"));
    const files = error.problems.map(({ position }) => `${position?.file}:${position?.line}`);
    assert(files.includes("bad/components/a.toml:2"), String(files));
    assert(files.includes("bad/components/b.toml:1"), String(files));
    return true;
  });
});

test("a refusal that is not about a missing source is passed on", async () => {
  const app = await packApp(join(folder, "app"), folder);
  const server = createServer((_request, response) => {
    response.statusCode = 400;
    response.end(JSON.stringify({ error: { code: "invalid", message: "No.", problems: [] } }));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert(address && typeof address === "object");
  const url = `http://127.0.0.1:${address.port}`;

  await assert.rejects(syncApp(createApiClient({ url, token: "t" }), app), /^Fault: No\.$/);
  server.closeAllConnections();
  server.close();
});
