/** Which proxy is taken, and that its password is shown to nobody. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isFault } from "../model/fault.ts";
import { chooseProxy } from "./proxy-choice.ts";

const server = new URL("wss://landfall.example.com/agent");

function choose(
  target: URL | string,
  environment: { [name: string]: string },
  configured: { proxy?: string; noProxy?: string } = {},
): string | null {
  return chooseProxy(new URL(target), { configured, environment })?.name ?? null;
}

test("each scheme has its variable, small letters win, and the configuration wins over both", () => {
  const both = { HTTPS_PROXY: "http://secure:1", HTTP_PROXY: "plain:2", http_proxy: "small" };

  assert.equal(choose(server, both), "secure:1");
  assert.equal(choose("https://landfall.example.com", both), "secure:1");
  assert.equal(choose("http://landfall.example.com", both), "small:80");
  assert.equal(choose(server, both, { proxy: "http://own:3" }), "own:3");
  assert.equal(choose(server, {}), null);
  assert.equal(choose(server, { HTTPS_PROXY: "" }), null);
});

test("what `noProxy` names is reached straight: names, names below them, addresses, networks, ports", () => {
  const proxy = "http://proxy:3128";
  const exempt = (target: string, noProxy: string) =>
    choose(target, {}, { proxy, noProxy }) === null;

  assert(exempt("https://a.example.com", "other, example.com"));
  assert(exempt("https://a.example.com", ".example.com"));
  assert(exempt("https://a.example.com", "*.EXAMPLE.com"));
  assert(exempt("https://a.example.com", "*"));
  assert(!exempt("https://badexample.com", "example.com"));
  assert(exempt("https://a.example.com:8443", "example.com:8443"));
  assert(!exempt("https://a.example.com", "example.com:8443"));
  assert(exempt("https://10.1.2.3", "10.0.0.0/8"));
  assert(!exempt("https://11.1.2.3", "10.0.0.0/8"));
  assert(exempt("https://10.1.2.3:99", "10.1.2.3"));
  assert(exempt("https://[fd00::1]", "fd00::/8"));
  assert(exempt("https://[fd00::1]", "fd00::1"));
  assert(!exempt("https://a.example.com", "10.0.0.0/8, 10.0.0.0/99, /, ,"));
  assert.equal(choose(server, { HTTPS_PROXY: proxy, NO_PROXY: "example.com" }), null);
  assert.equal(
    choose(server, { HTTPS_PROXY: proxy, NO_PROXY: "example.com" }, { noProxy: "" }),
    "proxy:3128",
  );
});

test("the environment's proxy is not used for this very machine, a configured one is", () => {
  const environment = { HTTP_PROXY: "http://proxy:1", HTTPS_PROXY: "http://proxy:1" };
  for (const host of ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "app.localhost"]) {
    assert.equal(choose(`http://${host}:8080`, environment), null, host);
    assert.equal(choose(`http://${host}`, environment, { proxy: "http://own:2" }), "own:2", host);
  }
});

test("a proxy's user and password become its authorization, decoded, and are not in its name", () => {
  const environment = { HTTPS_PROXY: "http://us%40er:p%3Ass@proxy:3128" };
  const proxy = chooseProxy(server, { configured: {}, environment });

  assert.equal(proxy?.name, "proxy:3128");
  assert.equal(proxy?.authorization, `Basic ${Buffer.from("us@er:p:ss").toString("base64")}`);
});

test("an address that is no proxy's is refused without being shown", () => {
  for (const text of ["socks5://user:secret@proxy:1080", "http://user:secret@:1", "http://"]) {
    assert.throws(
      () => choose(server, { HTTPS_PROXY: text }),
      (error) => isFault(error, "invalid") && !/secret/.test(error.message),
      text,
    );
  }
});
