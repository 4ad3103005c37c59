/** One running system, looked at from every side that a person has: terminal, command line, API, browser. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { AgentView, InstallView, JobView } from "../src/protocol/api.ts";
import {
  createPlace,
  landfallProgram,
  node,
  runCommand,
  type System,
  startSystem,
  until,
} from "./system.ts";

let place: Awaited<ReturnType<typeof createPlace>>;
let system: System;
before(async () => {
  place = await createPlace();
  system = startSystem(place);
  await system.ready();
});
after(async () => {
  await system.stop();
  await place.remove();
});

test("at the end it says where the app, the server, the API docs and the token are, what to try and how to stop", async () => {
  const output = system.output();
  const { url } = await urlOf("web");

  for (const text of [
    url,
    system.url,
    "/docs",
    "admin-token",
    "landfall installs show demo",
    "Ctrl-C",
  ]) {
    assert(output.includes(text), `${text} in:\n${output}`);
  }
});

test("the page of the deployed app shows the install's name, the version and what each component gave", async () => {
  const { url } = await urlOf("web");

  const page = await (await fetch(url)).text();

  for (const text of ["demo", "credentials", "database", "greeter", "migration", "kept secret"]) {
    assert(page.toLowerCase().includes(text), text);
  }
});

test("every command that reads answers, for people and as JSON", async () => {
  const { jobs } = await system.api<{ jobs: JobView[] }>("/api/jobs?limit=1");
  const commands = [
    ["builds"],
    ["installs", "list"],
    ["installs", "show", "demo"],
    ["jobs", "list"],
    ["jobs", "show", jobs[0]?.id ?? ""],
    ["agents"],
  ];

  for (const command of commands) {
    const plain = await runCommand(place.data, command);
    const json = await runCommand(place.data, [...command, "--json"]);
    assert.equal(plain.exitCode, 0, plain.output);
    assert.equal(json.exitCode, 0, json.output);
    assert.doesNotThrow(() => JSON.parse(json.output), command.join(" "));
  }
});

test("logs are readable by job and by component, and following an ended job ends", async () => {
  const plain = await runCommand(place.data, ["logs", "demo/migration"]);
  const followed = await runCommand(place.data, ["logs", "demo/migration", "-f"]);

  assert.equal(plain.exitCode, 0, plain.output);
  assert(plain.output.trim().length > 0);
  assert.equal(followed.output, plain.output);
});

test("a sync of the unchanged app changes nothing, and a deploy of what is there makes no job", async () => {
  const before = await countJobs();

  const synced = await runCommand(place.data, [
    "sync",
    join(import.meta.dirname, "../examples/guestbook"),
  ]);
  const deployed = await runCommand(place.data, ["deploy", "demo"]);

  assert.equal(synced.exitCode, 0, synced.output);
  assert.equal(deployed.exitCode, 0, deployed.output);
  assert.equal(await countJobs(), before);
});

test("a second install has its own sandbox, registry, agent and processes", async () => {
  const { exitCode, output } = await runCommand(place.data, [
    "installs",
    "create",
    "second",
    "--app",
    "guestbook",
  ]);
  assert.equal(exitCode, 0, output);

  const first = await system.install();
  const second = await system.api<InstallView>("/api/installs/second");
  const { agents } = await system.api<{ agents: AgentView[] }>("/api/agents");

  assert(
    second.components.every(({ state }) => state === "active"),
    output,
  );
  assert.notEqual(second.agent?.id, first.agent?.id);
  assert.equal(agents.filter(({ role }) => role === "install").length, 2);
  assert.equal(agents.filter(({ role }) => role === "build").length, 1);
  const urls = [first, second].map(
    ({ components }) => components.find(({ name }) => name === "web")?.outputs.url,
  );
  assert.notDeepEqual(urls[0], urls[1]);
});

test("nobody but a build job can push: a person's token is refused by the vendor's registry", async () => {
  const token = readFileSync(join(place.data, "server/admin-token"), "utf8");

  const push = await fetch(`${system.url}/v2/guestbook/web/blobs/uploads/`, {
    method: "POST",
    headers: { authorization: `Bearer ${token.trim()}` },
  });
  const anonymous = await fetch(`${system.url}/v2/guestbook/web/tags/list`);

  assert.equal(push.status, 401);
  assert.equal(anonymous.status, 401);
});

test("a second start on the same data folder, or on the same port, is refused and changes nothing", async () => {
  const sameFolder = await startAnother(["--data", place.data, "--port", "0"]);
  const other = await createPlace();
  const samePort = await startAnother(["--data", other.data, "--port", String(place.port)]);
  await other.remove();

  assert.notEqual(sameFolder.exitCode, 0);
  assert.match(sameFolder.output, /process \d+ uses it/);
  assert.notEqual(samePort.exitCode, 0);
  assert.match(samePort.output, new RegExp(`port ${place.port}.*--port`, "s"));
  assert.equal((await fetch(`${system.url}/healthz`)).status, 200);
});

test("logs are readable while the job runs", async () => {
  const app = join(import.meta.dirname, "fixtures/slow-app");
  const synced = await runCommand(place.data, ["sync", app]);
  assert.equal(synced.exitCode, 0, synced.output);
  const creating = runCommand(place.data, ["installs", "create", "slow", "--app", "slow"]);
  let job: JobView | undefined;
  await until(async () => {
    const { jobs } = await system.api<{ jobs: JobView[] }>("/api/jobs?limit=20");
    job = jobs.find(({ operation, state }) => operation === "apply" && state === "running");
    return job !== undefined;
  }, "the slow apply runs");

  const following = spawn(node[0], [
    node[1],
    landfallProgram,
    "logs",
    job?.id ?? "",
    "-f",
    "--data",
    place.data,
  ]);
  let seen = "";
  following.stdout.on("data", (chunk: Buffer) => {
    seen += chunk.toString();
  });
  await until(() => seen.includes("first line"), "the first line");
  const { state } = await system.api<JobView>(`/api/jobs/${job?.id}`);
  assert.equal(state, "running", "the job still runs when its first line is read");
  letSlowJobEnd();
  await once(following, "close");
  assert(seen.includes("last line"));
  assert.equal((await creating).exitCode, 0);
});

/** The slow program waits for a file beside what it keeps. */
function letSlowJobEnd(): void {
  const [folder] = globSync("installs/*/supervisor/data/slow", { cwd: place.data });
  assert(folder);
  writeFileSync(join(place.data, folder, "go"), "");
}

async function urlOf(component: string): Promise<{ url: string }> {
  const { components } = await system.install();
  const output = components.find(({ name }) => name === component)?.outputs.url;
  assert(output && !output.sensitive && typeof output.value === "string");
  return { url: output.value };
}

async function countJobs(): Promise<number> {
  const { jobs } = await system.api<{ jobs: JobView[] }>("/api/jobs?limit=200");
  return jobs.length;
}

async function startAnother(
  args: readonly string[],
): Promise<{ exitCode: number | null; output: string }> {
  const child = spawn(node[0], [node[1], landfallProgram, "dev", "--once", ...args]);
  let output = "";
  child.stdout.on("data", (chunk: Buffer) => {
    output += chunk.toString();
  });
  child.stderr.on("data", (chunk: Buffer) => {
    output += chunk.toString();
  });
  await once(child, "close");
  return { exitCode: child.exitCode, output };
}
