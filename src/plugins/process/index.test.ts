/** `process` keeps the contract of plugins, over a real supervisor. */
import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import type { JobId } from "../../model/ids.ts";
import type { JsonObject } from "../../model/json.ts";
import { pluginCommand } from "../../plugin/plugin.fixture.ts";
import { askPlugin, testPlugin } from "../../plugin/plugin-conformance.ts";
import type { PluginRequest } from "../../protocol/plugin-request.ts";
import { createSupervisorFixture } from "../../supervisor/supervisor.fixture.ts";
import { Config, describeChange, desiredProcess } from "./desired.ts";

const command = pluginCommand("process");
const server = `require("node:http").createServer((_, answer) => answer.end(process.env.GREETING))
  .listen(Number(process.env.PORT), "127.0.0.1");`;
const health = { http: "/", interval: "50ms", timeout: "1s" };

testPlugin({
  command,
  type: "process",
  config: { command: ["node", "server.cjs"], port: 0, env_vars: { GREETING: "hello" }, health },
  badConfig: { command: ["node"], port: 0, replicas: 2 },
  sourceFiles: { "server.cjs": server },
  outputs: { url: { sensitive: false }, port: { sensitive: false } },
  withPlace: (use) =>
    withSupervisor((supervisorDirectory) => use({ supervisorDirectory, stateBackend: null })),
});

test("process: a program that never becomes healthy fails with its last lines", () =>
  withSupervisor(async (supervisorDirectory) => {
    const crash = "console.log('no such table: guests'); process.exit(1)";
    const config = { command: ["node", "-e", crash], port: 0, restart: "never" };
    const { outcome } = await planAndApply(supervisorDirectory, config);

    assert.equal(outcome?.status, "failed");
    assert.match(outcome.message ?? "", /no such table: guests/);
  }));

test("process: the app gets a port that answers, under the address that others are told", () =>
  withSupervisor(async (supervisorDirectory) => {
    const { events } = await planAndApply(supervisorDirectory, {
      command: ["node", "-e", server],
      port: 0,
      env_vars: { GREETING: "hello" },
      health,
    });

    const url = events.flatMap((event) =>
      event.type === "output" && event.name === "url" ? [event.value] : [],
    );
    assert.equal(await (await fetch(String(url[0]))).text(), "hello");
  }));

test("process: the diff names what changes, key by key", () => {
  const request = { component: { name: "web" }, install: null } as unknown as PluginRequest;
  const place = { artifactDirectory: "/a", dataDirectory: "/d", nodeDirectory: "/n" };
  const before = desiredProcess(
    request,
    Config.parse({ command: ["node"], env_vars: { A: "1", B: "2" } }),
    place,
  );
  const after = desiredProcess(
    request,
    Config.parse({ command: ["node"], env_vars: { A: "3", C: "4" } }),
    place,
  );

  assert.deepEqual(describeChange(before, after), [
    "~ process",
    "  ~ env A: 1 → 3",
    "  - env B: 2",
    "  + env C: 4",
  ]);
  assert.deepEqual(describeChange(after, after), []);
});

async function planAndApply(supervisorDirectory: string, config: JsonObject) {
  const folder = await mkdtemp(join(tmpdir(), "landfall-process-"));
  try {
    await mkdir(join(folder, "artifact"));
    await writeFile(join(folder, "artifact", "server.cjs"), server);
    const request: PluginRequest = {
      version: 1,
      operation: "plan",
      job: { id: `job_${"0".repeat(24)}` as JobId, epoch: { generation: 1, n: 1 } },
      install: { id: "ins", name: "acme" },
      component: { name: "web", type: "process", config },
      sourceDirectory: null,
      outputDirectory: null,
      artifactDirectory: join(folder, "artifact"),
      artifactDigest: null,
      state: null,
      plan: null,
      workDirectory: folder,
      supervisorDirectory,
      stateBackend: null,
      sandbox: null,
    };
    const [plan] = (await askPlugin(command, request)).events.filter(
      (event) => event.type === "plan",
    );
    assert(plan);
    return await askPlugin(command, { ...request, operation: "apply", plan: plan.plan });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function withSupervisor(use: (directory: string) => Promise<void>): Promise<void> {
  const supervisor = createSupervisorFixture();
  try {
    await supervisor.start();
    await use(supervisor.directory);
  } finally {
    await supervisor.clean();
  }
}
