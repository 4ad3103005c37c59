/** The registry as a process of its own: killed, stopped, out of disk, with keys that change. */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";
import { once } from "node:events";
import { mkdir, readdir, rename, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { digestOf } from "../model/json.ts";
import { blobOf, pushImage } from "./content-conformance.ts";
import { collect, contentOf, describeContent } from "./content-stream.ts";
import { hashPassword } from "./password.ts";
import { eventually, program, withFolder, withProgram } from "./registry.fixture.ts";
import { createRegistryClient } from "./registry-client.ts";

const repository = "guestbook/web";
const credentials = { username: "install", password: "a password" };
const listen = { host: "127.0.0.1", port: 0 };
const passwordHash = await hashPassword(credentials.password, randomBytes);
const auth = { type: "basic", username: credentials.username, passwordHash };

test("kill -9 in the middle of an upload leaves no visible blob, and the next process serves on", () =>
  withFolder(async (folder) => {
    const directory = join(folder, "registry");
    const bytes = Buffer.alloc(2_000_000, "x");
    const digest = digestOf(bytes);
    let kept: Awaited<ReturnType<typeof pushImage>> | null = null;

    await withProgram({ directory, listen, auth }, async ({ child, url }) => {
      const client = createRegistryClient({ url, repository, credentials });
      kept = await pushImage(client, "kept");
      const half = await startHalfUpload(url, digest, bytes);
      await eventually(async () => {
        const [name] = await readdir(join(directory, "temporary"));
        assert.ok(name, "the upload has begun");
      });
      child.kill("SIGKILL");
      await once(child, "exit");
      half.destroy();
      client.close();
    });

    await withProgram({ directory, listen, auth }, async ({ url }) => {
      const client = createRegistryClient({ url, repository, credentials });
      const blob = { mediaType: "x", digest, size: bytes.length };
      assert.equal(await client.has(blob), false);
      const found = (await readdir(join(directory, "blobs"), { recursive: true })).join(" ");
      assert.equal(found.includes(digest.slice(7)), false);
      assert.ok(kept);
      assert.equal((await collect(await client.open(kept.layer), 100)).toString(), "kept");
      await client.push(blob, contentOf(bytes));
      assert.equal(await client.has(blob), true);
      client.close();
    });
  }));

test("SIGTERM ends it with 0 though a client holds on, and so does the end of its parent", () =>
  withFolder(async (folder) => {
    const config = { directory: folder, listen, auth, exitWithParent: true };
    await withProgram(config, async ({ child, url }) => {
      const half = await startHalfUpload(url, digestOf("x"), Buffer.alloc(1000));
      const began = Date.now();
      child.kill("SIGTERM");
      assert.deepEqual(await once(child, "exit"), [0, null]);
      assert.ok(Date.now() - began < 5000);
      half.destroy();
      assert.deepEqual(await readdir(join(folder, "temporary")), []);
    });

    await withProgram(config, async ({ child }) => {
      child.stdin?.end();
      assert.deepEqual(await once(child, "exit"), [0, null]);
    });
  }));

test("a port in use, a wrong configuration and a wrong command line end it with words", () =>
  withFolder(async (folder) => {
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const address = other.address();
    assert(address !== null && typeof address === "object");
    const run = async (config: object | null) => {
      const file = join(folder, "config.json");
      await writeFile(file, JSON.stringify(config));
      const child = spawn(process.execPath, [program, ...(config ? ["--config", file] : [])]);
      let words = "";
      child.stderr.on("data", (text) => {
        words += text;
      });
      const [code] = await once(child, "close");
      return { code, words };
    };

    const taken = await run({
      directory: join(folder, "r"),
      listen: { host: "127.0.0.1", port: address.port },
      auth,
    });
    const wrong = await run({ directory: join(folder, "r"), listen, auth: { type: "none" } });
    const hash = { ...auth, passwordHash: "plain text" };
    const plain = await run({ directory: join(folder, "r"), listen, auth: hash });
    const none = await run(null);
    other.close();

    assert.equal(taken.code, 3);
    assert.match(taken.words, new RegExp(`127.0.0.1:${address.port} to be free.*Stop it, or set`));
    assert.deepEqual([wrong.code, plain.code, none.code], [2, 2, 2]);
    assert.match(wrong.words, /`auth.type` to be `bearer` or `basic`/);
    assert.equal(plain.words.includes("plain text"), false);
    assert.match(none.words, /registry --config FILE/);
  }));

test("job tokens open what they name; a key that comes or goes counts from the next request", () =>
  withFolder(async (folder) => {
    const keysFile = join(folder, "keys.json");
    const first = generateKeyPairSync("ed25519");
    const second = generateKeyPairSync("ed25519");
    const writeKeys = async (...keys: (typeof first)[]) => {
      const entries = keys.map(({ publicKey }) => [rawKey(publicKey), rawKey(publicKey)]);
      await writeFile(`${keysFile}.new`, JSON.stringify(Object.fromEntries(entries)));
      await rename(`${keysFile}.new`, keysFile);
    };
    await writeKeys(first);
    const tokenOf = (pair: typeof first, actions: string[], now = new Date()) =>
      signToken(pair, [{ kind: "repository", name: repository, actions }], now);
    const config = { directory: join(folder, "r"), listen, auth: { type: "bearer", keysFile } };

    await withProgram(config, async ({ url, output }) => {
      let token = tokenOf(first, ["pull", "push"]);
      const client = createRegistryClient({
        url,
        repository,
        credentials: { token: async () => token },
      });
      const { root } = await pushImage(client, "hello");

      token = tokenOf(first, ["pull"]);
      const more = blobOf("more");
      assert.equal(await client.has(root), true);
      await assert.rejects(client.push(more.descriptor, contentOf(more.bytes)), {
        code: "forbidden",
      });
      token = tokenOf(first, ["pull"], new Date(Date.now() - 3_600_000));
      await assert.rejects(client.has(root), { code: "unauthorized" });
      token = tokenOf(second, ["pull"]);
      await assert.rejects(client.has(root), { code: "unauthorized" });
      await writeKeys(second);
      assert.equal(await client.has(root), true);
      token = tokenOf(first, ["pull"]);
      await assert.rejects(client.has(root), { code: "unauthorized" });
      client.close();

      const lines = output()
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line));
      assert.deepEqual(
        lines.map(({ event }) => event),
        ["listening", "push", "push", "push", "refusal", "refusal", "refusal", "refusal"],
      );
      assert.equal(output().includes(token), false);
    });
  }));

test(
  "a full disk refuses the push, keeps nothing of it, and the registry lives on",
  {
    skip: canMount() ? false : "this system does not let tests mount a small file system",
  },
  () =>
    withFolder(async (folder) => {
      const directory = join(folder, "small");
      await mkdir(directory);
      const script = `mount -t tmpfs -o size=4m small ${directory} && exec "$0" "$@"`;
      const unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script];
      const command = [...unshare, process.execPath, program];
      const config = { directory: join(directory, "r"), listen, auth };

      await withProgram(
        config,
        async ({ url, output }) => {
          const client = createRegistryClient({ url, repository, credentials });
          const bytes = Buffer.alloc(8_000_000, "x");
          const content = describeContent("x", bytes);

          await assert.rejects(client.push(content, contentOf(bytes)), {
            code: "unavailable",
            message: /507 UNAVAILABLE: Expected room on the registry's disk/,
          });

          assert.equal(await client.has(content), false);
          // Three of the four megabytes fit only when the failed upload's file is gone.
          const smaller = bytes.subarray(0, 3_000_000);
          await client.push(describeContent("x", smaller), contentOf(smaller));
          assert.match(output(), /"event":"failure".*"status":507/);
          client.close();
        },
        command,
      );
    }),
);

/** A PUT that has sent half of what it announced. */
async function startHalfUpload(url: string, digest: string, bytes: Buffer) {
  const basic = Buffer.from(`${credentials.username}:${credentials.password}`).toString("base64");
  const authorization = `Basic ${basic}`;
  const started = await fetch(`${url}/v2/${repository}/blobs/uploads/`, {
    method: "POST",
    headers: { authorization },
  });
  const location = started.headers.get("location");
  const socket = connect(Number(new URL(url).port), "127.0.0.1");
  socket.on("error", () => undefined);
  socket.write(
    `PUT ${location}?digest=${digest} HTTP/1.1\r\nhost: x\r\nauthorization: ${authorization}\r\ncontent-length: ${bytes.length}\r\n\r\n`,
  );
  await new Promise((resolve) => socket.write(bytes.subarray(0, bytes.length / 2), resolve));
  await eventually(async () => {
    const status = await fetch(url + location, { headers: { authorization } });
    assert.notEqual(status.headers.get("range"), "0-0");
  });
  return socket;
}

/** A job token made by hand, so that the format is checked from outside; the key names itself. */
function signToken(
  { publicKey, privateKey }: { publicKey: KeyObject; privateKey: KeyObject },
  access: readonly object[],
  now: Date,
): string {
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const issuedAt = Math.floor(now.getTime() / 1000);
  const claims = { sub: "job_1.1.1", jti: "tok_1", aud: "landfall-registry", access };
  const times = { iat: issuedAt, nbf: issuedAt - 60, exp: issuedAt + 300 };
  const header = { alg: "EdDSA", typ: "JWT", kid: rawKey(publicKey) };
  const text = `${encode(header)}.${encode({ ...claims, ...times })}`;
  return `${text}.${sign(null, Buffer.from(text), privateKey).toString("base64url")}`;
}

function rawKey(publicKey: KeyObject): string {
  return publicKey.export({ format: "jwk" }).x ?? "";
}

function canMount(): boolean {
  try {
    const mount = "mount -t tmpfs -o size=1m small /mnt";
    execFileSync("unshare", ["--user", "--map-root-user", "--mount", "sh", "-c", mount], {
      stdio: "ignore",
    });
    return true;
  } catch {
    return false;
  }
}
