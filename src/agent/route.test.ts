/** The way to the server over real sockets: tunnels, TLS, and what every obstacle is called. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer as createPlainServer } from "node:http";
import { createServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { isFault } from "../model/fault.ts";
import { postJson } from "./post-json.ts";
import { chooseProxy } from "./proxy-choice.ts";
import { createProxyDouble } from "./proxy-double.ts";
import { createRoute, readAuthorities } from "./route.ts";

const fixtures = join(import.meta.dirname, "..", "..", "test", "fixtures", "agent-tls");
const read = (name: string) => readFileSync(join(fixtures, name), "utf8");
const certificate = { key: read("server-key.pem"), cert: read("server.pem") };
const { signal } = new AbortController();

describe("the way to the server", () => {
  const answer = (_: unknown, response: import("node:http").ServerResponse) => response.end('"ok"');
  const secure = createServer(certificate, answer);
  const plain = createPlainServer(answer);
  let [securePort, plainPort] = [0, 0];
  before(async () => {
    await new Promise<void>((resolve) => secure.listen(0, "127.0.0.1", resolve));
    await new Promise<void>((resolve) => plain.listen(0, "127.0.0.1", resolve));
    [securePort, plainPort] = [secure, plain].map((s) => (s.address() as AddressInfo).port) as [
      number,
      number,
    ];
  });
  after(() => {
    for (const server of [secure, plain]) {
      server.closeAllConnections();
      server.close();
    }
  });

  async function ask(url: string, proxy?: string, authorities: string | null = read("ca.pem")) {
    const configured = proxy === undefined ? {} : { proxy };
    const route = createRoute({
      proxyFor: (target) => chooseProxy(target, { configured, environment: {} }),
      extraAuthorities: authorities,
    });
    const posted = { authorization: "x", body: {}, signal };
    return (await postJson(route, new URL(url), posted)).body;
  }

  const failsWith = (pattern: RegExp) => (error: unknown) => {
    assert(isFault(error, "unavailable"), String(error));
    assert.match(error.message, pattern);
    assert.doesNotMatch(error.message, /hunter2/);
    return true;
  };

  test("a private authority is trusted besides the others, straight and through a tunnel", async () => {
    const proxy = await createProxyDouble({ targetPort: securePort });
    try {
      assert.equal(await ask(`https://127.0.0.1:${securePort}`), "ok");
      assert.equal(await ask("https://server.landfall.test", proxy.url), "ok");
      assert.deepEqual(proxy.asked, ["server.landfall.test:443"]);
    } finally {
      await proxy.close();
    }
  });

  test("a proxy that speaks TLS itself, and wants a user and password, opens the tunnel for them", async () => {
    const authorization = `Basic ${Buffer.from("ann:hunter2").toString("base64")}`;
    const proxy = await createProxyDouble({
      targetPort: securePort,
      tls: certificate,
      authorization,
    });
    const at = `127.0.0.1:${proxy.port}`;
    try {
      assert.equal(await ask("https://server.landfall.test", `https://ann:hunter2@${at}`), "ok");
      await assert.rejects(
        ask("https://server.landfall.test", `https://${at}`),
        failsWith(/wants a user and password \(HTTP 407\).*`proxy`/),
      );
      await assert.rejects(
        ask("https://server.landfall.test", `https://bob:hunter2@${at}`),
        failsWith(/does not take the user and password.*407/),
      );
    } finally {
      await proxy.close();
    }
  });

  test("an address without TLS goes through a tunnel too, never as a request to the proxy", async () => {
    const proxy = await createProxyDouble({ targetPort: plainPort });
    try {
      assert.equal(await ask("http://server.landfall.test:8080", proxy.url), "ok");
      assert.deepEqual(proxy.asked, ["server.landfall.test:8080"]);
    } finally {
      await proxy.close();
    }
  });

  test("a certificate of an unknown authority is refused, and the message names `caFile`", async () => {
    await assert.rejects(
      ask(`https://127.0.0.1:${securePort}`, undefined, null),
      failsWith(/not trusted here \(\w+\).*`caFile`/),
    );
  });

  test("a certificate for another name is refused, through a tunnel too", async () => {
    const proxy = await createProxyDouble({ targetPort: securePort });
    try {
      await assert.rejects(
        ask("https://other.landfall.test", proxy.url),
        failsWith(/valid certificate of the server at other\.landfall\.test:443/),
      );
    } finally {
      await proxy.close();
    }
  });

  test("a proxy that refuses the tunnel is named with its status, the server and what to do", async () => {
    const proxy = await createProxyDouble({ targetPort: securePort });
    proxy.state.status = 403;
    try {
      await assert.rejects(
        ask("https://server.landfall.test", proxy.url),
        failsWith(
          new RegExp(`127.0.0.1:${proxy.port} .*server.landfall.test:443, got HTTP 403.*Allow`),
        ),
      );
    } finally {
      await proxy.close();
    }
  });

  test("what is no HTTP proxy, and what is not there at all, is told apart from the server", async () => {
    const odd = createTcpServer((socket) =>
      socket
        .on("error", () => {})
        .resume()
        .end("SSH-2.0-x\r\n"),
    );
    await new Promise<void>((resolve) => odd.listen(0, "127.0.0.1", resolve));
    const { port } = odd.address() as AddressInfo;
    const url = "https://server.landfall.test";
    await assert.rejects(ask(url, `http://127.0.0.1:${port}`), failsWith(/it is an HTTP proxy/));
    await new Promise((resolve) => odd.close(resolve));

    await assert.rejects(
      ask(url, `http://127.0.0.1:${port}`),
      failsWith(new RegExp(`reach the proxy at 127.0.0.1:${port}, got: connect ECONNREFUSED`)),
    );
    await assert.rejects(
      ask(`https://127.0.0.1:${port}`),
      failsWith(/reach the server at 127\.0\.0\.1/),
    );
  });
});

test("a `caFile` without certificates is refused by name", async () => {
  await assert.rejects(readAuthorities(join(fixtures, "readme.md")), /PEM.*readme\.md.*`caFile`/);
  await assert.rejects(readAuthorities(join(fixtures, "absent.pem")), /absent\.pem/);
  assert.equal(await readAuthorities(join(fixtures, "ca.pem")), read("ca.pem"));
});
