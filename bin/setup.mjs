/**
 * Makes a clone ready to run: installs the dependencies, and a newer Node where the machine's own is
 * older than 24. Plain JavaScript on purpose: it runs on Node 20 with nothing installed.
 *
 *   node_modules/.landfall-setup        what was installed (a hash), written last
 *   node_modules/.landfall-node         the path of the Node to run everything else with
 *   node_modules/.landfall-lock         who is at it; a dead holder's lock is taken over
 *   node_modules/.landfall-unfinished   there while npm writes: packages may be incomplete
 *   node_modules/.landfall/node24/      the newer Node; npm leaves names with a dot alone
 *
 * Invariants: the record of success is written last, so whatever is cut off is done again; no file
 * that git knows is changed; with nothing to do it says nothing and starts no process.
 */
import { spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { createLock } from "./setup-lock.mjs";

const nodeMajorMin = 20;
const nodeMajorWanted = 24;
const npmTimeoutMs = 15 * 60_000;
const stopGraceMs = 2000;
const outputCharactersMax = 20_000;

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const modules = join(root, "node_modules");
const files = {
  setup: join(modules, ".landfall-setup"),
  node: join(modules, ".landfall-node"),
  lock: join(modules, ".landfall-lock"),
  unfinished: join(modules, ".landfall-unfinished"),
  node24: join(modules, ".landfall", "node24"),
  tools: join(modules, ".landfall", "tools"),
};
const npmFlags = ["--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
const nodePackage = `node-${process.platform}-${process.arch}`;

/** Programs that only the tests need, and the Debian packages that hold them. */
const testTools = [
  { program: "bwrap", package: "bubblewrap" },
  { program: "unshare", package: "util-linux" },
  { program: "mount", package: "mount" },
  { program: "chromium", package: "chromium" },
];

const tofuVersion = "v1.12.6";

class SetupError extends Error {}

/** Children that are running; ended before this process ends. */
const children = new Set();
const lock = createLock(files.lock, () => [...children].flatMap(({ pid }) => pid ?? []));

for (const [signal, exitCode] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
  ["SIGHUP", 129],
]) {
  process.on(signal, () => void abandon(exitCode));
}

try {
  await setUp();
  if (process.argv.includes("--tests")) {
    await installTestTools();
    await buildTofu();
  }
} catch (error) {
  lock.release();
  if (!(error instanceof SetupError)) throw error;
  console.error(error.message);
  process.exitCode = 1;
}

async function setUp() {
  if (ownMajor() < nodeMajorMin) {
    throw new SetupError(
      `Expected Node ${nodeMajorMin} or newer, got ${process.version}. Install a newer Node (https://nodejs.org), then run this again.`,
    );
  }
  if (isReady()) return;
  makeModules();
  const tellHolder = (pid) => console.log(`Waiting for another set-up (process ${pid}) …`);
  if (!(await lock.take(tellHolder))) {
    throw new SetupError(
      "Expected the other set-up to end within minutes, but it did not. Stop it, then run this again.",
    );
  }
  try {
    // Another process may have done it all while this one waited.
    if (isReady()) return;
    clearUnfinished();
    // Side by side: one waits for the network while the other unpacks.
    const [node] = await Promise.all([prepareNode(), installDependencies()]);
    write(files.node, `${node}\n`);
    write(files.setup, `${wantedHash()}\n`);
  } finally {
    lock.release();
  }
}

function isReady() {
  const node = read(files.node)?.trim();
  if (!node || read(files.setup)?.trim() !== wantedHash()) return false;
  if (node === process.execPath) return ownMajor() >= nodeMajorWanted;
  return isExecutable(node);
}

/** Changes whenever anything changes that decides what is installed. */
function wantedHash() {
  const hash = createHash("sha256").update(`1 ${process.platform} ${process.arch}`);
  for (const name of ["package.json", "package-lock.json"]) {
    hash.update(`\n${name}\n`).update(read(join(root, name)) ?? "");
  }
  return hash.digest("hex");
}

/** A kill while npm writes may leave packages that look installed and are not: those are removed. */
function clearUnfinished() {
  if (!fs.existsSync(files.unfinished)) return;
  console.log("An earlier set-up was cut off: starting afresh.");
  for (const name of fs.readdirSync(modules)) {
    if (!name.startsWith(".landfall")) fs.rmSync(join(modules, name), { recursive: true });
  }
  for (const name of readFolder(dirname(files.node24))) {
    if (name !== "node24") fs.rmSync(join(modules, ".landfall", name), { recursive: true });
  }
  fs.rmSync(files.unfinished);
}

async function installDependencies() {
  const since = performance.now();
  console.log("Installing dependencies …");
  fs.rmSync(files.setup, { force: true });
  fs.writeFileSync(files.unfinished, "");
  await npm(["install", ...npmFlags, "--include=dev", "--include=optional"], root);
  fs.rmSync(files.unfinished);
  console.log(`Installed dependencies in ${seconds(since)}.`);
}

/** The path of a Node that is new enough, fetched from the package registry if need be. */
async function prepareNode() {
  if (ownMajor() >= nodeMajorWanted) return process.execPath;
  const program = join("node_modules", nodePackage, "bin", "node");
  if (isExecutable(join(files.node24, program))) return join(files.node24, program);
  const since = performance.now();
  console.log(`Fetching Node ${nodeMajorWanted}, since this one is ${process.version} …`);
  const partial = `${files.node24}-${randomBytes(4).toString("hex")}`;
  fs.mkdirSync(partial, { recursive: true });
  fs.writeFileSync(join(partial, "package.json"), "{}\n");
  const wanted = `${nodePackage}@${nodeMajorWanted}`;
  await npm(["install", ...npmFlags, "--no-package-lock", "--prefix", partial, wanted], partial);
  const { exitCode, output } = await run(join(partial, program), ["--version"], {});
  if (exitCode !== 0 || !output.startsWith(`v${nodeMajorWanted}.`)) {
    throw new SetupError(
      `Expected the package ${wanted} to run on this machine, but it said: ${output.trim()}. Install Node ${nodeMajorWanted} or newer (https://nodejs.org), then run this again.`,
    );
  }
  fs.rmSync(files.node24, { recursive: true, force: true });
  fs.renameSync(partial, files.node24);
  console.log(`Fetched Node ${output.trim()} in ${seconds(since)}.`);
  return join(files.node24, program);
}

async function npm(args, cwd) {
  const env = { ...process.env, npm_config_update_notifier: "false" };
  // Some machines point this to the headers of an old Node.
  env.npm_config_nodedir = "";
  for (const name of ["npm_config_prefix", "npm_config_global", "npm_config_dry_run"]) {
    delete env[name];
  }
  const outer = process.env.npm_execpath;
  const isNpm = outer !== undefined && /npm-cli\.c?js$/.test(outer) && fs.existsSync(outer);
  const [program, first] = isNpm ? [process.execPath, [outer]] : ["npm", []];
  const { exitCode, output } = await run(program, [...first, ...args], { cwd, env });
  if (exitCode !== 0) throw new SetupError(explainNpm(output));
}

function explainNpm(output) {
  const said = output.trim().split("\n").slice(-12).join("\n");
  const advice = [
    [
      /spawn npm ENOENT/,
      "Expected npm on the path, but there is none. Install it (on Debian: `apt-get install npm`), then run this again.",
    ],
    [
      /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT/,
      "Expected to reach the package registry, but the network did not answer. Check the connection, the proxy and `npm config get registry`, then run this again.",
    ],
    [
      /ENOSPC|EDQUOT/,
      "Expected room for the dependencies (about 500 MB), but the disk is full. Free some space, then run this again.",
    ],
    [
      /EROFS|EACCES|EPERM/,
      `Expected to write in ${modules}, but it is not allowed. Run this as the owner of the clone, or clone it to a folder of your own.`,
    ],
  ].find(([pattern]) => pattern.test(output));
  return `${advice?.[1] ?? "Expected npm to install the dependencies, but it failed. See what it says below, then run this again."}\n${said}`;
}

async function installTestTools() {
  const missing = testTools.filter(({ program }) => !isOnPath(program));
  if (missing.length === 0) return;
  const packages = [...new Set(missing.map((tool) => tool.package))];
  const command = `apt-get install --no-install-recommends ${packages.join(" ")}`;
  const names = missing.map(({ program }) => program).join(", ");
  if (process.getuid?.() !== 0 || !isOnPath("apt-get")) {
    console.error(`The tests need ${names}, which is missing. As root, run: ${command}`);
    return;
  }
  const since = performance.now();
  console.log(`Installing ${packages.join(", ")} for the tests …`);
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const args = ["install", "--yes", "--no-install-recommends", ...packages];
  let { exitCode, output } = await run("apt-get", args, { env });
  if (exitCode !== 0) {
    // A fresh machine has no package lists yet.
    await run("apt-get", ["update"], { env });
    ({ exitCode, output } = await run("apt-get", args, { env }));
  }
  if (exitCode === 0) console.log(`Installed ${packages.join(", ")} in ${seconds(since)}.`);
  else console.error(`The tests need ${names}, but \`${command}\` failed:\n${output.trim()}`);
}

/** Terraform comes from nowhere that can be reached here; OpenTofu can be built, once, in some minutes. */
async function buildTofu() {
  const isThere = ["terraform", "tofu"].some(isOnPath) || fs.existsSync(join(files.tools, "tofu"));
  if (isThere) return;
  if (!isOnPath("go")) {
    console.error(
      "The tests need `terraform` or `tofu` on the path, or `go` to build one: install one of them.",
    );
    return;
  }
  const since = performance.now();
  console.log(`Building OpenTofu ${tofuVersion} for the tests, which takes some minutes …`);
  const { exitCode, output } = await run(
    join(root, "bin", "setup-tofu.sh"),
    [tofuVersion, files.tools],
    {
      env: process.env,
    },
  );
  if (exitCode === 0) console.log(`Built OpenTofu in ${seconds(since)}.`);
  else
    console.error(
      `The tests need \`terraform\` or \`tofu\`, but building one failed:\n${output.trim()}`,
    );
}

/** Runs a program to its end; ended when this process is, or when it takes too long. */
function run(program, args, options) {
  return new Promise((resolve) => {
    let output = "";
    const child = spawn(program, args, {
      ...options,
      stdio: ["ignore", "pipe", "pipe"],
    });
    // Not spawn's own `timeout`: that one keeps this process waiting when the program does not exist.
    const timer = setTimeout(() => child.kill(), npmTimeoutMs);
    const keep = (chunk) => {
      output = `${output}${chunk}`.slice(-outputCharactersMax);
    };
    const finish = (exitCode) => {
      clearTimeout(timer);
      children.delete(child);
      resolve({ exitCode, output });
    };
    children.add(child);
    lock.refresh();
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    child.once("error", (error) => {
      keep(error.message);
      finish(127);
    });
    child.once("close", (exitCode) => finish(exitCode ?? 1));
  });
}

/** Ctrl-C or a kill: children end first, so that nobody writes into node_modules afterwards. */
async function abandon(exitCode) {
  for (const signal of ["SIGTERM", "SIGKILL"]) {
    for (const child of children) child.kill(signal);
    const deadline = performance.now() + stopGraceMs;
    while (children.size > 0 && performance.now() < deadline) await delay(20);
  }
  lock.release();
  process.exit(exitCode);
}

function makeModules() {
  try {
    fs.mkdirSync(modules, { recursive: true });
    fs.accessSync(modules, fs.constants.W_OK);
  } catch (error) {
    throw new SetupError(
      `Expected to write in ${modules}, but it is not possible (${error.code}). Run this as the owner of the clone, or clone it to a folder that can be written.`,
    );
  }
}

function ownMajor() {
  return Number(process.version.slice(1).split(".")[0]);
}

function isOnPath(program) {
  const folders = (process.env.PATH ?? "").split(delimiter);
  return folders.some((folder) => folder !== "" && isExecutable(join(folder, program)));
}

function isExecutable(file) {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function read(file) {
  try {
    return fs.readFileSync(file, "utf8");
  } catch {
    return null;
  }
}

function readFolder(folder) {
  return fs.existsSync(folder) ? fs.readdirSync(folder) : [];
}

function write(file, text) {
  fs.writeFileSync(`${file}.new`, text);
  fs.renameSync(`${file}.new`, file);
}

function seconds(since) {
  return `${((performance.now() - since) / 1000).toFixed(1)} s`;
}
