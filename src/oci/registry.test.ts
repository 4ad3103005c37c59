/** The distribution API, spoken by hand over loopback. */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { digestOf } from "../model/json.ts";
import { blobOf, imageManifestOf, pushImage } from "./content-conformance.ts";
import { imageManifestBytesMax, mediaTypes } from "./image-manifest.ts";
import { eventually, type TestRegistry, withRegistry } from "./registry.fixture.ts";
import { createRegistryClient } from "./registry-client.ts";

const repository = "guestbook/web";
const absent = `sha256:${"0".repeat(64)}`;

test("an upload in parts is kept when its digest matches", () =>
  withRegistry(async ({ url, records }) => {
    const bytes = Buffer.from("hello, registry");
    const started = await post(url, "");
    assert.equal(started.status, 202);
    const location = url + started.headers.get("location");

    const first = await fetch(location, {
      method: "PATCH",
      body: bytes.subarray(0, 5),
      headers: { "content-range": "0-4" },
    });
    const status = await fetch(location);
    const ended = await fetch(`${location}?digest=${digestOf(bytes)}`, {
      method: "PUT",
      body: bytes.subarray(5),
      headers: { "content-range": "5-14" },
    });

    assert.deepEqual([first.status, first.headers.get("range")], [202, "0-4"]);
    assert.deepEqual([status.status, status.headers.get("range")], [204, "0-4"]);
    assert.equal(ended.status, 201);
    assert.equal(ended.headers.get("docker-content-digest"), digestOf(bytes));
    const blob = await fetch(url + ended.headers.get("location"));
    assert.equal(await blob.text(), "hello, registry");
    assert.deepEqual(records.at(-1), {
      event: "push",
      kind: "blob",
      repository,
      digest: digestOf(bytes),
      bytes: bytes.length,
    });
  }));

test("a part that does not begin where the last one ended is refused, and the upload goes on", () =>
  withRegistry(async ({ url }) => {
    const location = url + (await post(url, "")).headers.get("location");
    await fetch(location, { method: "PATCH", body: "hello" });

    const wrong = await fetch(location, {
      method: "PATCH",
      body: "x",
      headers: { "content-range": "9-9" },
    });
    const ended = await fetch(`${location}?digest=${digestOf("hello")}`, { method: "PUT" });

    assert.deepEqual([wrong.status, wrong.headers.get("range")], [416, "0-4"]);
    assert.equal(ended.status, 201);
  }));

test("a whole blob in one POST with a wrong digest is refused and nothing of it stays", () =>
  withRegistry(async ({ url, directory }) => {
    const refused = await post(url, `?digest=${absent}`, "other bytes");

    assert.deepEqual([refused.status, await codeOf(refused)], [400, "DIGEST_INVALID"]);
    assert.equal(
      (await fetch(`${url}/v2/${repository}/blobs/${digestOf("other bytes")}`)).status,
      404,
    );
    assert.deepEqual(await readdir(join(directory, "temporary")), []);
    assert.deepEqual(await readdir(join(directory, "blobs", "sha256")), []);
  }));

test("a cancelled upload is gone, with its file", () =>
  withRegistry(async ({ url, directory }) => {
    const location = url + (await post(url, "")).headers.get("location");
    await fetch(location, { method: "PATCH", body: "hello" });

    const cancelled = await fetch(location, { method: "DELETE" });

    assert.equal(cancelled.status, 204);
    const asked = await fetch(location);
    assert.deepEqual([asked.status, await codeOf(asked)], [404, "BLOB_UPLOAD_UNKNOWN"]);
    assert.deepEqual(await readdir(join(directory, "temporary")), []);
  }));

test("a client that goes away in the middle of a part may ask how far it came", () =>
  withRegistry(async ({ url }) => {
    const location = String((await post(url, "")).headers.get("location"));
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    socket.write(`PATCH ${location} HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhello`);

    await eventually(async () => {
      const range = (await fetch(url + location)).headers.get("range");
      assert.equal(range, "0-4");
    });
    socket.destroy();

    const ended = await eventually(async () => {
      const answer = await fetch(`${url}${location}?digest=${digestOf("hello!")}`, {
        method: "PUT",
        body: "!",
        headers: { "content-range": "5-5" },
      });
      assert.notEqual(answer.status, 409);
      return answer;
    });
    assert.equal(ended.status, 201);
  }));

test("unfinished uploads are bounded in number and in size", () =>
  withRegistry(
    async ({ url, directory }) => {
      const location = url + (await post(url, "")).headers.get("location");
      const second = await post(url, "");
      const large = await fetch(location, { method: "PATCH", body: "x".repeat(200_000) });

      assert.deepEqual([second.status, await codeOf(second)], [429, "TOOMANYREQUESTS"]);
      assert.deepEqual([large.status, await codeOf(large)], [413, "SIZE_INVALID"]);
      assert.deepEqual(await readdir(join(directory, "temporary")), []);
    },
    { limits: { uploadsMax: 1, blobBytesMax: 1000 } },
  ));

test("a refused push is read to its end, within bounds, so that the answer arrives", () =>
  withRegistry(
    async ({ url }) => {
      const push = (bytes: number) => post(url, `?digest=${absent}`, "x".repeat(bytes));

      const small = await push(1_000_000);
      const large = await push(6_000_000).catch(() => null);

      assert.deepEqual([small.status, small.headers.get("connection")], [401, "keep-alive"]);
      // Beyond the bounds the connection is closed; a client may then see that instead.
      assert.ok(large === null || large.headers.get("connection") === "close");
      assert.equal((await fetch(`${url}/v2/`)).status, 200);
    },
    {
      authorize: async ({ action }) =>
        action === "push" ? { status: 401, message: "Expected a token." } : null,
    },
  ));

test("an upload belongs to its repository: its id opens nothing under another name", () =>
  withRegistry(async ({ url }) => {
    const location = String((await post(url, "")).headers.get("location"));
    const elsewhere = url + location.replace(repository, "other/place");

    const asked = await fetch(elsewhere);
    const ended = await fetch(`${elsewhere}?digest=${digestOf("")}`, { method: "PUT" });

    assert.deepEqual([asked.status, await codeOf(asked)], [404, "BLOB_UPLOAD_UNKNOWN"]);
    assert.equal(ended.status, 404);
    assert.equal((await fetch(url + location)).status, 204);
  }));

test("a blob is mounted from another repository only when that one has it", () =>
  withRegistry(async ({ url }) => {
    const digest = digestOf("hello");
    await post(url, `?digest=${digest}`, "hello");
    const mount = (from: string, what: string) =>
      fetch(`${url}/v2/other/place/blobs/uploads/?mount=${what}&from=${from}`, { method: "POST" });

    assert.equal((await fetch(`${url}/v2/other/place/blobs/${digest}`)).status, 404);
    assert.equal((await mount(repository, absent)).status, 202);
    assert.equal((await mount("no/where", digest)).status, 202);
    assert.equal((await mount(repository, digest)).status, 201);

    assert.equal(await (await fetch(`${url}/v2/other/place/blobs/${digest}`)).text(), "hello");
  }));

test("a blob is read in parts", () =>
  withRegistry(async ({ url }) => {
    const digest = digestOf("0123456789");
    await post(url, `?digest=${digest}`, "0123456789");
    const read = async (range: string) => {
      const answer = await fetch(`${url}/v2/${repository}/blobs/${digest}`, { headers: { range } });
      return [answer.status, answer.headers.get("content-range"), await answer.text()];
    };

    assert.deepEqual(await read("bytes=2-4"), [206, "bytes 2-4/10", "234"]);
    assert.deepEqual(await read("bytes=7-"), [206, "bytes 7-9/10", "789"]);
    assert.deepEqual(await read("bytes=-2"), [206, "bytes 8-9/10", "89"]);
    assert.deepEqual(await read("bytes=5-99"), [206, "bytes 5-9/10", "56789"]);
    assert.deepEqual((await read("bytes=10-")).slice(0, 2), [416, "bytes */10"]);
    assert.deepEqual(await read("bytes=nonsense"), [200, null, "0123456789"]);
    const head = await fetch(`${url}/v2/${repository}/blobs/${digest}`, { method: "HEAD" });
    assert.deepEqual([head.status, head.headers.get("content-length")], [200, "10"]);
  }));

test("an imageManifest is found by tag and by digest, and its removal takes the tag along", () =>
  withRegistry(async (registry) => {
    const { root } = await pushFrom(registry, "one");
    const bytes = await (await at(registry, `manifests/${root.digest}`)).arrayBuffer();
    const tagged = await at(registry, "manifests/v1", {
      method: "PUT",
      body: bytes,
      headers: { "content-type": root.mediaType },
    });
    assert.equal(tagged.status, 201);

    const found = await at(registry, "manifests/v1", { method: "HEAD" });
    assert.equal(found.headers.get("docker-content-digest"), root.digest);
    assert.equal(found.headers.get("content-type"), root.mediaType);

    assert.equal(
      (await at(registry, `manifests/${root.digest}`, { method: "DELETE" })).status,
      202,
    );
    assert.equal((await at(registry, "manifests/v1")).status, 404);
    assert.equal((await at(registry, `manifests/${root.digest}`)).status, 404);
    assert.deepEqual(await (await at(registry, "tags/list")).json(), {
      name: repository,
      tags: [],
    });
  }));

test("a manifest that names missing blobs is refused with each of them", () =>
  withRegistry(async (registry) => {
    const manifest = imageManifestOf(blobOf("config").descriptor, [blobOf("layer").descriptor]);

    const refused = await at(registry, "manifests/v1", {
      method: "PUT",
      body: manifest.bytes,
      headers: { "content-type": mediaTypes.imageManifest },
    });

    assert.equal(refused.status, 404);
    const { errors } = (await refused.json()) as { errors: { code: string; detail: object }[] };
    assert.deepEqual(
      errors.map(({ code, detail }) => [code, detail]),
      [
        ["MANIFEST_BLOB_UNKNOWN", { digest: blobOf("config").descriptor.digest }],
        ["MANIFEST_BLOB_UNKNOWN", { digest: blobOf("layer").descriptor.digest }],
      ],
    );
    assert.equal((await at(registry, "manifests/v1")).status, 404);
  }));

test("manifests that are too large, not JSON, of another type or digest are refused", () =>
  withRegistry(async (registry) => {
    const put = async (reference: string, body: string | Buffer, type: string) => {
      const answer = await at(registry, `manifests/${reference}`, {
        method: "PUT",
        body,
        headers: { "content-type": type },
      });
      return [answer.status, await codeOf(answer)];
    };
    const type = mediaTypes.imageManifest;

    const large = Buffer.alloc(imageManifestBytesMax + 1, " ");
    assert.deepEqual(await put("v1", large, type), [413, "SIZE_INVALID"]);
    assert.deepEqual(await put("v1", "not json", type), [400, "MANIFEST_INVALID"]);
    assert.deepEqual(await put("v1", "{}", "text/plain"), [400, "MANIFEST_INVALID"]);
    assert.deepEqual(await put("-bad-tag", "{}", type), [400, "MANIFEST_INVALID"]);
    assert.deepEqual(await put(absent, "{}", type), [400, "DIGEST_INVALID"]);
    const escaping = imageManifestOf(
      { mediaType: "x", digest: "sha256:../../../../etc/passwd", size: 1 },
      [],
    );
    assert.deepEqual(await put("v1", escaping.bytes, type), [400, "MANIFEST_INVALID"]);
  }));

test("tags are listed in pages, sorted", () =>
  withRegistry(async (registry) => {
    const { root } = await pushFrom(registry, "one");
    const body = await (await at(registry, `manifests/${root.digest}`)).arrayBuffer();
    const headers = { "content-type": root.mediaType };
    for (const tag of ["v3", "v1", "v2"]) {
      await at(registry, `manifests/${tag}`, { method: "PUT", body, headers });
    }

    const first = await at(registry, "tags/list?n=2");
    const link = String(first.headers.get("link"));
    const second = await fetch(registry.url + link.slice(1, link.indexOf(">")));

    assert.deepEqual(await first.json(), { name: repository, tags: ["v1", "v2"] });
    assert.deepEqual(await second.json(), { name: repository, tags: ["v3"] });
    assert.equal(second.headers.get("link"), null);
    const unknown = await fetch(`${registry.url}/v2/no/such/tags/list`);
    assert.deepEqual([unknown.status, await codeOf(unknown)], [404, "NAME_UNKNOWN"]);
  }));

test("referrers are filtered by artifact type", () =>
  withRegistry(async (registry) => {
    const { root } = await pushFrom(registry, "subject");
    const signature = await pushFrom(registry, "a", { subject: root, artifactType: "a/signature" });
    await pushFrom(registry, "b", { subject: root, artifactType: "b/bill" });

    const all = await at(registry, `referrers/${root.digest}`);
    const some = await at(registry, `referrers/${root.digest}?artifactType=a/signature`);

    assert.equal(((await all.json()) as { manifests: object[] }).manifests.length, 2);
    assert.equal(some.headers.get("oci-filters-applied"), "artifactType");
    const { manifests } = (await some.json()) as { manifests: { digest: string }[] };
    assert.deepEqual(
      manifests.map((entry) => entry.digest),
      [signature.root.digest],
    );
  }));

test("names that could leave the folder never reach it", () =>
  withRegistry(async ({ url }) => {
    const raw = (target: string) => rawStatus(url, target);

    assert.equal(await raw("/v2/../../etc/blobs/uploads/"), 400);
    assert.equal(await raw(`/v2/UPPER/manifests/v1`), 400);
    assert.equal(await raw(`/v2/a/_blobs/x/manifests/v1`), 400);
    assert.equal(await raw(`/v2/${repository}/blobs/sha256:..%2f..%2fetc`), 400);
    assert.equal(await raw(`/v2/${repository}/manifests/..`), 404);
    assert.equal(await raw(`/v2/${repository}/manifests/%2e%2e%2fx`), 404);
    assert.equal(await raw(`/v2/${repository}/blobs/%ff%`), 400);
    assert.equal(await raw("/v2/_catalog"), 404);
    assert.equal(await raw("/"), 404);
    assert.equal(await raw("/v2/"), 200);
  }));

function post(url: string, query: string, body?: string): Promise<Response> {
  return fetch(`${url}/v2/${repository}/blobs/uploads/${query}`, {
    method: "POST",
    ...(body === undefined ? {} : { body }),
  });
}

function at(registry: TestRegistry, path: string, init: RequestInit = {}): Promise<Response> {
  return fetch(`${registry.url}/v2/${repository}/${path}`, init);
}

async function codeOf(response: Response): Promise<string | undefined> {
  const { errors } = (await response.json()) as { errors: { code: string }[] };
  return errors[0]?.code;
}

async function pushFrom(
  registry: TestRegistry,
  text: string,
  extra: Parameters<typeof pushImage>[2] = {},
) {
  const client = createRegistryClient({ url: registry.url, repository, credentials: null });
  try {
    return await pushImage(client, text, extra);
  } finally {
    client.close();
  }
}

/** Without the normalising that `fetch` does to paths. */
function rawStatus(url: string, target: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    socket.setTimeout(5000, () => socket.destroy(new Error("no answer")));
    socket.on("error", reject);
    socket.once("data", (data) => {
      socket.destroy();
      resolve(Number(data.toString().split(" ")[1]));
    });
    socket.write(`GET ${target} HTTP/1.1\r\nhost: x\r\n\r\n`);
  });
}
