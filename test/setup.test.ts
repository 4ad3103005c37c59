/**
 * Set-up of a clone, with the real npm against a small package registry on loopback: a project with one
 * dependency, and a package that plays the newer Node.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { after, before, type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import { pack } from "tar-stream";

const nodePackage = `node-${process.platform}-${process.arch}`;
let folder = "";
let registry: Server;
/** While set, a tarball is asked for but never given. */
let stalled = false;
let requests: string[] = [];

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "landfall-test-"));
  registry = await startRegistry();
});
after(async () => {
  registry.closeAllConnections();
  registry.close();
  await rm(folder, { recursive: true, force: true });
});

test("a fresh clone gets its dependencies, git's files stay as they are, and a second run does nothing", async (t) => {
  const clone = await makeClone("fresh");
  const lock = readFileSync(join(clone, "package-lock.json"), "utf8");

  const first = await setUp(t, clone);
  requests = [];
  const second = await setUp(t, clone, { path: "/nowhere" });

  assert.match(first.output, /^Installing dependencies …\nInstalled dependencies in [\d.]+ s\.\n$/);
  assert.equal(first.exitCode, 0);
  assert.deepEqual(second, { exitCode: 0, output: "" });
  assert.deepEqual(requests, []);
  assert.equal(
    readFileSync(join(clone, "node_modules/.landfall-node"), "utf8").trim(),
    process.execPath,
  );
  assert.equal(existsSync(join(clone, "node_modules/tiny/index.js")), true);
  assert.equal(readFileSync(join(clone, "package-lock.json"), "utf8"), lock);
  assert.deepEqual(readdirSync(clone).sort(), [
    "bin",
    "node_modules",
    "package-lock.json",
    "package.json",
  ]);
});

test("a changed lock file is installed", async (t) => {
  const clone = await makeClone("changed");
  await setUp(t, clone);
  await writeFile(
    join(clone, "package-lock.json"),
    `${readFileSync(join(clone, "package-lock.json"), "utf8")}\n`,
  );

  const { exitCode, output } = await setUp(t, clone);

  assert.equal(exitCode, 0, output);
  assert.match(output, /Installed dependencies/);
});

test("with an old Node the newer one is fetched, once, and kept when dependencies are installed again", async (t) => {
  const clone = await makeClone("old node");

  const first = await setUp(t, clone, { version: "v20.11.0" });
  const node = readFileSync(join(clone, "node_modules/.landfall-node"), "utf8").trim();
  const second = await setUp(t, clone, { version: "v20.11.0" });
  await writeFile(join(clone, "node_modules/.landfall-setup"), "");
  const third = await setUp(t, clone, { version: "v20.11.0" });

  assert.match(first.output, /Fetching Node 24, since this one is v20\.11\.0 …/);
  assert.match(first.output, /Fetched Node v24\.0\.0 in /);
  assert.equal(
    node,
    join(clone, `node_modules/.landfall/node24/node_modules/${nodePackage}/bin/node`),
  );
  assert.deepEqual(second, { exitCode: 0, output: "" });
  assert.doesNotMatch(third.output, /Node/);
  assert.equal(existsSync(node), true);
});

test("a set-up killed with -9 half-way is completed by the next, and its npm ends", async (t) => {
  const clone = await makeClone("killed");
  stalled = true;
  const { child, npm } = await startAndStall(t, clone);
  child.kill("SIGKILL");
  await once(child, "exit");
  stalled = false;

  const { exitCode, output } = await setUp(t, clone);

  assert.equal(exitCode, 0, output);
  assert.match(output, /An earlier set-up was cut off: starting afresh\.\n/);
  assert.equal(existsSync(join(clone, "node_modules/tiny/index.js")), true);
  assert.equal(isRunning(npm), false);
});

test("a set-up that is asked to stop ends its npm first, and leaves no lock", async (t) => {
  const clone = await makeClone("stopped");
  stalled = true;
  const { child, npm } = await startAndStall(t, clone);

  child.kill("SIGTERM");
  const [exitCode] = await once(child, "exit");
  stalled = false;

  assert.equal(exitCode, 143);
  assert.equal(isRunning(npm), false);
  assert.equal(existsSync(join(clone, "node_modules/.landfall-lock")), false);
});

test("of two set-ups at once, one installs and the other waits for it", async (t) => {
  const clone = await makeClone("two");

  const both = await Promise.all([setUp(t, clone), setUp(t, clone)]);

  assert.deepEqual(
    both.map(({ exitCode }) => exitCode),
    [0, 0],
  );
  const outputs = both.map(({ output }) => output);
  assert.equal(outputs.filter((output) => output.includes("Installed")).length, 1, outputs.join());
});

test("a Node that is too old, no npm, no network and a read-only clone are each said, with what to do", async (t) => {
  const clone = await makeClone("faults");
  const nothing = { path: "/nowhere" };
  const unreachable = { registry: "http://127.0.0.1:9/" };

  const old = await setUp(t, clone, { version: "v18.19.0" });
  const withoutNpm = await setUp(t, clone, nothing);
  const withoutNetwork = await setUp(t, clone, unreachable);
  const readOnly = await setUp(t, clone, { readOnly: true });

  assert.match(old.output, /^Expected Node 20 or newer, got v18\.19\.0\. Install a newer Node/);
  assert.match(withoutNpm.output, /^Expected npm on the path, .* Install it/m);
  assert.match(
    withoutNetwork.output,
    /^Expected to reach the package registry, .* Check the connection/m,
  );
  assert.match(
    readOnly.output,
    /^Expected to write in .*node_modules, .* clone it to a folder that can be written/m,
  );
  for (const { exitCode } of [old, withoutNpm, withoutNetwork, readOnly]) assert.equal(exitCode, 1);
});

test("the command works through links, from any folder, and sets up a clone that is not ready", async (t) => {
  const clone = await makeClone("command");
  await cp(join(import.meta.dirname, "../bin/landfall"), join(clone, "bin/landfall"));
  await writeFile(
    join(clone, "bin/landfall.mjs"),
    "console.log(JSON.stringify(process.argv.slice(2)));",
  );
  await symlink(join(clone, "bin/landfall"), join(folder, "absolute link"));
  await symlink("absolute link", join(folder, "landfall"));
  const command = [join(folder, "landfall"), "logs", "a b"];
  const path = [join(process.execPath, ".."), process.env.PATH].join(delimiter);

  const first = await finish(start(t, clone, command, { path }));
  const second = await finish(start(t, clone, command, { path: "/usr/bin:/bin" }));

  assert.match(first.output, /^Installing dependencies/);
  assert.match(first.output, /^\["logs","a b"\]$/m);
  assert.deepEqual(second, { exitCode: 0, output: '["logs","a b"]\n' });
});

interface Circumstances {
  readonly path?: string;
  /** What the machine's Node says that it is. */
  readonly version?: string;
  readonly registry?: string;
  readonly readOnly?: boolean;
}

function setUp(t: TestContext, clone: string, circumstances: Circumstances = {}) {
  return finish(startSetUp(t, clone, circumstances));
}

async function finish(child: ChildProcess) {
  let output = "";
  const keep = (text: unknown) => {
    output += text;
  };
  child.stdout?.on("data", keep);
  child.stderr?.on("data", keep);
  const [exitCode] = await once(child, "close");
  return { exitCode, output };
}

function startSetUp(t: TestContext, clone: string, circumstances: Circumstances): ChildProcess {
  const { version = process.version } = circumstances;
  const disguise = `Object.defineProperty(process, "version", { value: ${JSON.stringify(version)} })`;
  const node = [
    process.execPath,
    `--import=data:text/javascript,${encodeURIComponent(disguise)}`,
    join(clone, "bin/setup.mjs"),
  ];
  const mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"';
  const asRoot = process.getuid?.() === 0 ? [] : ["--map-root-user"];
  const command = circumstances.readOnly
    ? ["unshare", ...asRoot, "--mount", "sh", "-c", mount, clone, ...node]
    : node;
  return start(t, clone, command, circumstances);
}

function start(
  t: TestContext,
  clone: string,
  [program = "", ...args]: readonly string[],
  circumstances: Circumstances,
): ChildProcess {
  const { port } = registry.address() as AddressInfo;
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      // The npm that belongs to whatever Node is first on the path; a Node for its first line.
      PATH: circumstances.path ?? `${process.env.PATH}${delimiter}${join(process.execPath, "..")}`,
      HOME: folder,
      npm_config_registry: circumstances.registry ?? `http://127.0.0.1:${port}/`,
      npm_config_cache: join(clone, "..", "cache"),
      npm_config_fetch_retries: "0",
    },
  });
  t.after(() => child.kill("SIGKILL"));
  return child;
}

/** A set-up whose npm waits for a tarball that does not come. */
async function startAndStall(t: TestContext, clone: string) {
  requests = [];
  const child = startSetUp(t, clone, {});
  await waitFor(() => requests.some((url) => url.endsWith(".tgz")));
  const lines = readFileSync(join(clone, "node_modules/.landfall-lock"), "utf8").split("\n");
  const npm = Number(lines[1]?.split(" ")[0]);
  assert.equal(isRunning(npm), true);
  return { child, npm };
}

/** A project like this one: the real set-up, and one dependency in its lock file. */
async function makeClone(name: string): Promise<string> {
  const clone = join(folder, name, "clone");
  await mkdir(join(clone, "bin"), { recursive: true });
  for (const file of ["setup.mjs", "setup-lock.mjs"]) {
    await cp(join(import.meta.dirname, "../bin", file), join(clone, "bin", file));
  }
  const own = { name: "clone", version: "1.0.0", dependencies: { tiny: "1.0.0" } };
  const { integrity } = await makePackage("tiny", "1.0.0");
  const resolved = "https://registry.npmjs.org/tiny/-/tiny-1.0.0.tgz";
  const packages = { "": own, "node_modules/tiny": { version: "1.0.0", resolved, integrity } };
  const lock = { name: "clone", version: "1.0.0", lockfileVersion: 3, requires: true, packages };
  await writeFile(join(clone, "package.json"), `${JSON.stringify({ ...own, private: true })}\n`);
  await writeFile(join(clone, "package-lock.json"), `${JSON.stringify(lock, null, 2)}\n`);
  return clone;
}

async function makePackage(name: string, version: string) {
  const tar = pack();
  const mtime = new Date(0);
  tar.entry({ name: "package/package.json", mtime }, JSON.stringify({ name, version }));
  tar.entry({ name: "package/index.js", mtime }, "");
  tar.entry({ name: "package/bin/node", mtime, mode: 0o755 }, "#!/bin/sh\necho v24.0.0\n");
  tar.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of tar) chunks.push(Buffer.from(chunk as Uint8Array));
  const tarball = gzipSync(Buffer.concat(chunks));
  const integrity = `sha512-${createHash("sha512").update(tarball).digest("base64")}`;
  return { tarball, integrity };
}

async function startRegistry(): Promise<Server> {
  const versions = new Map([
    ["tiny", "1.0.0"],
    [nodePackage, "24.0.0"],
  ]);
  const server = createServer(async (request, response) => {
    const url = request.url ?? "";
    requests.push(url);
    const name = url.split("/")[1] ?? "";
    const version = versions.get(name);
    if (version === undefined) return response.writeHead(404).end("{}");
    const { tarball, integrity } = await makePackage(name, version);
    if (url.endsWith(".tgz")) return stalled ? undefined : response.end(tarball);
    const address = `http://${request.headers.host}/${name}/-/${name}-${version}.tgz`;
    const manifest = { name, version, dist: { tarball: address, integrity } };
    return response.end(
      JSON.stringify({ name, "dist-tags": { latest: version }, versions: { [version]: manifest } }),
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

async function waitFor(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (!condition()) {
    assert(Date.now() < deadline, "the condition did not come true in a minute");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}
