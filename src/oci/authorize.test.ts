/** Who gets in, over real HTTP: with job tokens, and with the one password of an install's registry. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { Fault } from "../model/fault.ts";
import { digestOf } from "../model/json.ts";
import { type Access, authorizeBasic, authorizeBearer } from "./authorize.ts";
import { blobOf, pushImage } from "./content-conformance.ts";
import { contentOf } from "./content-stream.ts";
import { hashPassword, verifyPassword } from "./password.ts";
import { withRegistry } from "./registry.fixture.ts";
import { createRegistryClient } from "./registry-client.ts";

const tokens: { readonly [token: string]: readonly Access[] } = {
  build: [{ kind: "repository", name: "guestbook/web", actions: ["pull", "push"] }],
  sync: [{ kind: "repository", name: "guestbook/web", actions: ["pull"] }],
  other: [{ kind: "repository", name: "guestbook/db", actions: ["pull", "push"] }],
  source: [{ kind: "source", name: "guestbook/web", actions: ["pull", "push"] }],
};

const authorize = authorizeBearer(async (token) => {
  const [name = "", sub] = token.split("@");
  const access = tokens[name];
  if (!access) throw new Fault("unauthorized", "Expected a known token.");
  return { access, ...(sub === undefined ? {} : { sub }) };
});

test("a tag is not moved or removed by an older try of a job than the one that moved it last", () =>
  withRegistry(
    async ({ url }) => {
      const build = clientFor(url, "build");
      const { root } = await pushImage(build, "hello");
      const found = await fetch(`${url}/v2/guestbook/web/manifests/${root.digest}`, {
        headers: { authorization: "Bearer build" },
      });
      const body = await found.bytes();
      const address = `${url}/v2/guestbook/web/manifests/newest`;
      const move = async (mover: string, method = "PUT") => {
        const answer = await fetch(address, {
          method,
          headers: {
            authorization: `Bearer build@${mover}`,
            "content-type": root.mediaType,
          },
          ...(method === "PUT" ? { body } : {}),
        });
        return answer.status;
      };

      assert.equal(await move("job_b.1.2"), 201);
      assert.equal(await move("job_b.1.1"), 403);
      assert.equal(await move("job_a.9.9"), 403);
      assert.equal(await move("job_b.1.2"), 201);
      assert.equal(await move("job_b.2.1"), 201);
      assert.equal(await move("job_b.1.3"), 403);
      assert.equal(await move("job_c.1.1"), 201);
      assert.equal(
        (await fetch(address, { headers: { authorization: "Bearer build" } })).status,
        200,
      );
      build.close();
    },
    { authorize },
  ));

test("a token with pull scope reads and cannot push or delete", () =>
  withRegistry(
    async ({ url, records }) => {
      const build = clientFor(url, "build");
      const sync = clientFor(url, "sync");
      const { root } = await pushImage(build, "hello");
      const { bytes, descriptor } = blobOf("more");

      assert.equal(await sync.has(root), true);
      await assert.rejects(sync.push(descriptor, contentOf(bytes)), { code: "forbidden" });
      assert.equal(await build.has(descriptor), false);
      assert.equal(records.at(-1)?.event, "refusal");
      const removal = await fetch(`${url}/v2/guestbook/web/manifests/${root.digest}`, {
        method: "DELETE",
        headers: { authorization: "Bearer build" },
      });
      assert.equal(removal.status, 403);
      build.close();
      sync.close();
    },
    { authorize },
  ));

test("a token for one repository, or for a source, cannot read another", () =>
  withRegistry(
    async ({ url }) => {
      const build = clientFor(url, "build");
      const { root, layer } = await pushImage(build, "hello");

      for (const name of ["other", "source"]) {
        const client = clientFor(url, name);
        await assert.rejects(client.stat(root.digest), { code: "forbidden" });
        await assert.rejects(client.has(layer), { code: "forbidden" });
        client.close();
      }
      build.close();
    },
    { authorize },
  ));

test("a blob is not mounted out of a repository that the token does not open", () =>
  withRegistry(
    async ({ url }) => {
      const build = clientFor(url, "build");
      const { layer } = await pushImage(build, "hello");

      const mounted = await fetch(
        `${url}/v2/guestbook/db/blobs/uploads/?mount=${layer.digest}&from=guestbook/web`,
        { method: "POST", headers: { authorization: "Bearer other" } },
      );

      assert.equal(mounted.status, 202);
      const read = await fetch(`${url}/v2/guestbook/db/blobs/${layer.digest}`, {
        headers: { authorization: "Bearer other" },
      });
      assert.equal(read.status, 404);
      build.close();
    },
    { authorize },
  ));

test("without a token, or with a bad one, every request is challenged", () =>
  withRegistry(
    async ({ url, records }) => {
      const none = await fetch(`${url}/v2/guestbook/web/tags/list`);
      const bad = await fetch(`${url}/v2/`, { headers: { authorization: "Bearer forged-secret" } });

      assert.equal(none.status, 401);
      assert.match(
        String(none.headers.get("www-authenticate")),
        /scope="repository:guestbook\/web:pull"/,
      );
      assert.equal(bad.status, 401);
      assert.match(String(bad.headers.get("www-authenticate")), /invalid_token/);
      assert.equal(records.length, 2);
      assert.equal(JSON.stringify(records).includes("forged-secret"), false);
    },
    { authorize },
  ));

test("the registry with a password refuses everything without it, and all works with it", async () => {
  const passwordHash = await hashPassword("correct horse", randomBytes);
  const basic = authorizeBasic({ username: "install", passwordHash }, randomBytes);
  const digest = digestOf("x");

  await withRegistry(
    async ({ url, records }) => {
      const paths = ["/v2/", "/", "/nowhere", "/v2/a/tags/list", `/v2/a/blobs/${digest}`];
      const wrong = [
        "",
        "Basic",
        `Basic ${encode("install:wrong")}`,
        `Basic ${encode("x:correct horse")}`,
        "Bearer build",
      ];
      for (const path of paths) {
        for (const method of ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"]) {
          const answer = await fetch(url + path, { method });
          assert.deepEqual([path, method, answer.status], [path, method, 401]);
        }
      }
      for (const authorization of wrong) {
        const answer = await fetch(`${url}/v2/`, { headers: { authorization } });
        assert.equal(answer.status, 401, authorization);
        assert.match(String(answer.headers.get("www-authenticate")), /^Basic /);
      }
      const credentials = { username: "install", password: "correct horse" };
      const client = createRegistryClient({ url, repository: "guestbook/web", credentials });
      const { root } = await pushImage(client, "hello");
      assert.equal(await client.has(root), true);
      client.close();
      assert.equal(JSON.stringify(records).includes("correct horse"), false);
      assert.equal(JSON.stringify(records).includes(encode("install:correct horse")), false);
    },
    { authorize: basic },
  );
});

test("a password's hash tells right from wrong, and differs each time", async () => {
  const first = await hashPassword("secret", randomBytes);
  const second = await hashPassword("secret", randomBytes);

  assert.notEqual(first, second);
  assert.equal(await verifyPassword("secret", first), true);
  assert.equal(await verifyPassword("secret ", first), false);
  await assert.rejects(verifyPassword("secret", "scrypt$1$1$1$$"), { code: "invalid" });
});

function encode(text: string): string {
  return Buffer.from(text).toString("base64");
}

function clientFor(url: string, token: string) {
  return createRegistryClient({
    url,
    repository: "guestbook/web",
    credentials: { token: async () => token },
  });
}
