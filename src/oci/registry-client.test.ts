/** The client against registries that break, lie and come back. */
import assert from "node:assert/strict";
import { open, readdir } from "node:fs/promises";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { blobOf, pushImage } from "./content-conformance.ts";
import { isBadContent } from "./content-fault.ts";
import { collect, contentOf, describeContent } from "./content-stream.ts";
import { withRegistry } from "./registry.fixture.ts";
import { createRegistryClient } from "./registry-client.ts";

const repository = "guestbook/web";
const sizeMax = 10_000_000;

test("a byte that changed on the registry's disk is noticed, and the fault names place and digest", () =>
  withRegistry(async ({ url, directory }) => {
    const client = createRegistryClient({ url, repository, credentials: null });
    const { layer } = await pushImage(client, "a".repeat(300_000));
    await flipByte(directory, layer.digest, 150_000);

    const error = await failureOf(collect(await client.open(layer), sizeMax));

    assert.equal(isBadContent(error), true);
    assert.match(error.message, new RegExp(layer.digest));
    assert.match(error.message, new RegExp(`${url}/${repository}`));
    client.close();
  }));

test("a changed imageManifest is noticed too", () =>
  withRegistry(async ({ url, directory }) => {
    const client = createRegistryClient({ url, repository, credentials: null });
    const { root } = await pushImage(client, "hello");
    await flipByte(directory, root.digest, 10);

    const error = await failureOf(collect(await client.open(root), sizeMax));

    assert.equal(isBadContent(error), true);
    client.close();
  }));

test("no reader is given the last bytes of content that does not match", () => {
  const promised = blobOf("0123456789").descriptor;
  const lying: RequestListener = (_request, response) => {
    response.writeHead(200, { "content-length": 10 });
    response.write("01234");
    setImmediate(() => response.end("5678X"));
  };
  return withServer(lying, async (url) => {
    const client = createRegistryClient({ url, repository, credentials: null });
    let given = "";

    await assert.rejects(
      async () => {
        for await (const piece of await client.open(promised)) given += Buffer.from(piece);
      },
      { reason: "mismatch" },
    );

    assert.equal(given.includes("X"), false);
    client.close();
  });
});

test("a download whose connection breaks goes on where it stopped", () => {
  const bytes = Buffer.alloc(1_000_000, "0123456789");
  const content = describeContent("x", bytes);
  const ranges: (string | undefined)[] = [];
  const breaking: RequestListener = (request, response) => {
    ranges.push(request.headers.range);
    const start = Number(/\d+/.exec(request.headers.range ?? "0")?.[0]);
    response.writeHead(start > 0 ? 206 : 200, { "content-length": bytes.length - start });
    if (ranges.length > 3) return void response.end(bytes.subarray(start));
    response.write(bytes.subarray(start, start + 200_000), () => response.destroy());
  };
  return withServer(breaking, async (url) => {
    const client = createRegistryClient({ url, repository, credentials: null });

    const read = await collect(await client.open(content), sizeMax);

    assert.equal(read.equals(bytes), true);
    assert.equal(ranges[0], undefined);
    assert.equal(ranges.length, 4);
    assert.match(String(ranges[1]), /^bytes=[1-9]\d*-$/);
    client.close();
  });
});

test("a registry that never delivers is given up after a bounded number of tries", () => {
  let requests = 0;
  const breaking: RequestListener = (_request, response) => {
    requests++;
    response.writeHead(200, { "content-length": 10 });
    response.write("x", () => response.destroy());
  };
  return withServer(breaking, async (url) => {
    const client = createRegistryClient({ url, repository, credentials: null });
    const { descriptor } = blobOf("0123456789");

    await assert.rejects(async () => collect(await client.open(descriptor), 100), {
      code: "unavailable",
    });

    assert.ok(requests <= 10, `${requests} requests`);
    client.close();
  });
});

test("a registry that is silent is given up in time", () =>
  withServer(
    () => undefined,
    async (url) => {
      const client = createRegistryClient({
        url,
        repository,
        credentials: null,
        idleMs: 50,
        retriesMax: 1,
      });

      await assert.rejects(client.has(blobOf("x").descriptor), {
        code: "unavailable",
        message: /silent for 50 ms/,
      });
      client.close();
    },
  ));

test("nobody listening is said in words", async () => {
  const client = createRegistryClient({
    url: "http://127.0.0.1:1",
    repository,
    credentials: null,
    retriesMax: 0,
  });

  await assert.rejects(client.has(blobOf("x").descriptor), {
    code: "unavailable",
    message: /127\.0\.0\.1:1 .*ECONNREFUSED.*Check that it runs/,
  });
  client.close();
});

test("a registry that is overloaded for a moment is asked again, from the first byte", () => {
  const { bytes, descriptor } = blobOf("content");
  const received: string[] = [];
  const busyOnce: RequestListener = async (request, response) => {
    const body = (await collect(request, 100)).toString();
    if (request.method === "POST") {
      return void response.writeHead(202, { location: "/upload?state=1" }).end();
    }
    received.push(`${request.url} ${body}`);
    response.writeHead(received.length === 1 ? 503 : 201).end();
  };
  return withServer(busyOnce, async (url) => {
    const client = createRegistryClient({ url, repository, credentials: null });

    await client.push(descriptor, contentOf(bytes));

    const expected = `/upload?state=1&digest=${descriptor.digest} content`;
    assert.deepEqual(received, [expected, expected]);
    client.close();
  });
});

test("the token is asked for at each request and goes nowhere else", () => {
  const seen: (string | undefined)[] = [];
  const elsewhere: RequestListener = (request, response) => {
    seen.push(request.headers.authorization);
    response.writeHead(202, { location: "http://127.0.0.2:9/steal" }).end();
  };
  return withServer(elsewhere, async (url) => {
    let count = 0;
    const token = async () => `token-${++count}`;
    const client = createRegistryClient({ url, repository, credentials: { token } });
    const { bytes, descriptor } = blobOf("x");

    await assert.rejects(client.push(descriptor, contentOf(bytes)), { code: "invalid" });
    await assert.rejects(client.push(descriptor, contentOf(bytes)), { code: "invalid" });

    assert.deepEqual(seen, ["Bearer token-1", "Bearer token-2"]);
    client.close();
  });
});

test("an address with a password in it is refused without repeating it", () => {
  assert.throws(
    () => createRegistryClient({ url: "http://u:hunter2@x", repository, credentials: null }),
    (error: Error) => !error.message.includes("hunter2"),
  );
});

async function failureOf(promise: Promise<unknown>): Promise<Error> {
  return promise.then(
    () => assert.fail("it did not fail"),
    (error: Error) => error,
  );
}

async function flipByte(directory: string, digest: string, position: number): Promise<void> {
  const hex = digest.slice(7);
  assert.ok((await readdir(join(directory, "blobs", "sha256"))).includes(hex.slice(0, 2)));
  const file = await open(join(directory, "blobs", "sha256", hex.slice(0, 2), hex), "r+");
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, position);
  await file.write(Buffer.from([byte.readUInt8() ^ 1]), 0, 1, position);
  await file.close();
}

async function withServer(
  listener: RequestListener,
  use: (url: string) => Promise<void>,
): Promise<void> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}
