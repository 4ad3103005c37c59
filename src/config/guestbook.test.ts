/**
 * The example is read without a problem, and its programs do together what the page promises: here
 * they are started by hand, with their configuration rendered as an install would.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import type { AppConfig } from "../model/app-config.ts";
import { graphOf, topologicalLayers } from "../model/graph.ts";
import type { JsonObject } from "../model/json.ts";
import { renderJson, Sensitive, type TemplateValue } from "../model/template.ts";
import { readApp } from "./read-app.ts";

const root = fileURLToPath(new URL("../../examples/guestbook", import.meta.url));
const startTimeoutMs = 10_000;
/** A second is promised; a busy machine gets more. */
const stopMs = 3000;
const running = new Map<string, ChildProcess>();
const outputs: Record<string, { outputs: Record<string, TemplateValue> }> = {};
const logs: string[] = [];
let directory = "";
let app: AppConfig;
let password = "";

before(async () => {
  directory = await mkdtemp(join(tmpdir(), "landfall-guestbook-"));
  const { config, problems } = await readApp(root);
  assert.deepEqual(problems, []);
  assert(config);
  app = config;
  for (const name of ["credentials", "database", "migration", "greeter", "web"]) await deploy(name);
  password = givenPassword();
});

after(async () => {
  for (const name of running.keys()) await stop(name);
  await rm(directory, { recursive: true, force: true });
});

test("the graph of the example has a diamond, and the theme is a leaf", () => {
  assert.deepEqual(topologicalLayers(graphOf(app.components)), [
    ["credentials"],
    ["database"],
    ["greeter", "migration"],
    ["web"],
    ["theme"],
  ]);
});

test("the page answers with the install's name, the version and what each component gave", async () => {
  const page = (await (await fetch(urlOf("web"))).text()).replaceAll("<wbr>", "");

  for (const text of ["acme &lt;1&gt;", "v1.0.0", "Ada", "kept secret", urlOf("database")]) {
    assert(page.includes(text), text);
  }
  assert(!page.includes(password));
});

test("the status asks the database and the greeter", async () => {
  const status = (await (await fetch(`${urlOf("web")}/api/status`)).json()) as JsonObject;

  assert.equal(status.ok, true);
  assert.equal(status.install, "acme <1>");
  assert.equal(status.version, "1.0.0");
  assert.equal(status.entries, 3);
  assert.deepEqual(Object.keys(status.components as JsonObject), [
    "credentials",
    "database",
    "migration",
    "greeter",
    "web",
  ]);
  assert(!JSON.stringify(status).includes(password));
});

test("whoever signs is shown, escaped, also after the database was restarted", async () => {
  const signed = await fetch(`${urlOf("web")}/sign`, {
    method: "POST",
    body: new URLSearchParams({ name: "<b>Eve</b>", message: "<script>alert(1)</script>" }),
  });
  assert.match(await signed.text(), /Thank you/);
  await stop("database");
  await deploy("database");

  const page = await (await fetch(urlOf("web"))).text();

  assert(page.includes("&lt;b&gt;Eve&lt;/b&gt;") && page.includes("&lt;script&gt;alert(1)"));
  assert(!page.includes("<script>"));
});

test("without its database the page still opens and says so, and the status is not ok", async () => {
  await stop("database");

  const page = await fetch(urlOf("web"));
  const status = await fetch(`${urlOf("web")}/api/status`);

  assert.equal(page.status, 200);
  assert.match(await page.text(), /The database does not answer/);
  assert.equal(status.status, 503);
  assert.equal(((await status.json()) as JsonObject).ok, false);
  await deploy("database");
});

test("the database refuses whoever does not know the password", async () => {
  for (const headers of [{}, { authorization: "Bearer wrong" }]) {
    assert.equal((await fetch(`${urlOf("database")}/entries`, { headers })).status, 401);
  }
});

test("jobs run again give the same, and no program prints the password", async () => {
  await deploy("credentials");
  await deploy("migration");

  assert.equal(givenPassword(), password);
  assert.deepEqual(outputs.migration?.outputs, { schema: 1, entries: 3 });
  assert(!logs.join("").includes(password));
});

test("every process ends soon after it is asked to", async () => {
  for (const name of ["web", "greeter"]) {
    const startedAt = performance.now();
    assert.equal(await stop(name), 0);
    assert(performance.now() - startedAt < stopMs);
  }
});

/** Starts a component of the example as an install would, and notes what it gives. */
async function deploy(name: string): Promise<void> {
  const component = app.components.find((candidate) => candidate.name === name);
  assert(component?.source, name);
  const { value } = renderJson(component.config, {
    install: { id: "ins_1", name: "acme <1>" },
    inputs: { inputs: { title: "Hello", accent: "#336699" } },
    components: outputs,
  });
  const config = value as { command: string[]; env_vars?: Record<string, string> };
  const outputsFile = join(directory, `${name}.outputs`);
  await rm(outputsFile, { force: true });
  const port = component.type === "process" ? (portOf(name) ?? (await freePort())) : null;
  const child = spawn(config.command[0] ?? "", config.command.slice(1), {
    cwd: join(root, component.source.path),
    env: {
      PATH: dirname(process.execPath),
      DATA_DIR: join(directory, name),
      LANDFALL_STATE_DIR: directory,
      LANDFALL_OUTPUTS: outputsFile,
      LANDFALL_COMPONENT: name,
      ...(port === null ? {} : { PORT: String(port) }),
      ...config.env_vars,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  child.stdout.on("data", (chunk) => logs.push(String(chunk)));
  child.stderr.on("data", (chunk) => logs.push(String(chunk)));
  if (port === null) {
    const [code] = await once(child, "close");
    assert.equal(code, 0, logs.join(""));
    outputs[name] = { outputs: await readOutputs(outputsFile, component.outputs) };
    return;
  }
  running.set(name, child);
  outputs[name] = { outputs: { url: `http://127.0.0.1:${port}`, port } };
  await untilHealthy(`http://127.0.0.1:${port}/healthz`);
}

async function readOutputs(file: string, declared: AppConfig["components"][number]["outputs"]) {
  const given: Record<string, TemplateValue> = {};
  for (const line of (await readFile(file, "utf8")).trim().split("\n")) {
    const [key = "", value = ""] = line.split("=");
    const pairs = line.startsWith("{")
      ? Object.entries(JSON.parse(line) as JsonObject)
      : [[key, value] as const];
    for (const [name, item] of pairs) {
      assert(declared[name], `${name} is declared`);
      given[name] = declared[name].sensitive ? new Sensitive(item) : item;
    }
  }
  return given;
}

async function untilHealthy(url: string): Promise<void> {
  const deadline = performance.now() + startTimeoutMs;
  while (performance.now() < deadline) {
    const response = await fetch(url).catch(() => null);
    if (response?.ok) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.fail(`${url} does not answer: ${logs.join("")}`);
}

async function stop(name: string): Promise<number | null> {
  const child = running.get(name);
  running.delete(name);
  if (!child || child.exitCode !== null) return child?.exitCode ?? null;
  child.kill("SIGTERM");
  const [code] = await once(child, "close");
  return code as number | null;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address ? address.port : 0;
}

function givenPassword(): string {
  const given = outputs.credentials?.outputs.password;
  assert(given instanceof Sensitive);
  return String(given.reveal());
}

function portOf(name: string): number | null {
  const port = outputs[name]?.outputs.port;
  return typeof port === "number" ? port : null;
}

function urlOf(name: string): string {
  return String(outputs[name]?.outputs.url);
}
