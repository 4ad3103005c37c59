import assert from "node:assert/strict";
import { test } from "node:test";
import { sampleComponent, sampleInstall, sampleJob } from "../install-view-samples.ts";
import { findAddresses } from "./app-address.ts";
import { type Run, summaryJson, summaryTable, welcomeLines } from "./summary.ts";

const url = (value: string) => ({ url: { sensitive: false as const, value } });
const install = sampleInstall({
  components: [
    sampleComponent("web", { artifactDigest: "sha256:aa", outputs: url("http://127.0.0.1:4000") }),
    sampleComponent("api", { artifactDigest: "sha256:bb", outputs: url("http://127.0.0.1:4001") }),
    sampleComponent("dns", { type: "terraform_module", state: "disabled", reason: "no terraform" }),
  ],
});
const run: Run = {
  ok: true,
  readyMs: 1234.5,
  reason: null,
  install,
  jobs: [
    sampleJob({ operation: "sync", outcome: { status: "succeeded", bytesCopied: 2048 } }),
    sampleJob({ operation: "apply" }),
  ],
  answers: [
    { component: "web", url: "http://127.0.0.1:4000", path: "/api/status", ok: true, said: "ok" },
  ],
  phases: { postgres: 80.4, server: 300 },
};

test("the summary's JSON is one line with what programs need", () => {
  const text = summaryJson(run);
  const json = JSON.parse(text);

  assert(!text.includes("\n"));
  assert.equal(json.ok, true);
  assert.equal(json.ready_ms, 1235);
  assert.equal(json.jobs, 2);
  assert.equal(json.artifacts, 2);
  assert.equal(json.bytes_copied, 2048);
  assert.deepEqual(json.phases, { postgres: 80, server: 300 });
  assert.deepEqual(json.components[2], {
    name: "dns",
    type: "terraform_module",
    state: "disabled",
    reason: "no terraform",
    artifact: null,
  });
});

test("the JSON of a failure holds the reason", () => {
  const json = JSON.parse(summaryJson({ ...run, ok: false, reason: "it broke", install: null }));

  assert.equal(json.ok, false);
  assert.equal(json.reason, "it broke");
  assert.deepEqual(json.components, []);
});

test("the table has a line per component and says whether it is ready", () => {
  const lines = summaryTable(run, { width: 100, colours: false });

  assert.match(lines[1] ?? "", /^web +process +active +2 +http:\/\/127.0.0.1:4000 answers$/);
  assert.match(lines.at(-1) ?? "", /ready in 1\.2 s/);
  for (const line of lines) assert(line.length <= 100);
});

test("the app's address is that of `web`, or else of every process that has one", () => {
  assert.deepEqual(findAddresses(install), [{ component: "web", url: "http://127.0.0.1:4000" }]);
  const without = { ...install, components: install.components.slice(1) };
  assert.deepEqual(findAddresses(without), [{ component: "api", url: "http://127.0.0.1:4001" }]);
});

test("an address that is sensitive, or no address, is none", () => {
  const components = [
    sampleComponent("a", { outputs: { url: { sensitive: true, hash: "h" } } }),
    sampleComponent("b", { outputs: url("javascript:alert(1)") }),
    sampleComponent("c", { state: "failed", outputs: url("http://127.0.0.1:1") }),
  ];
  assert.deepEqual(findAddresses(sampleInstall({ components })), []);
});

test("the token is shown where it was asked for, and otherwise only its file", () => {
  const facts = {
    addresses: findAddresses(install),
    serverUrl: "http://127.0.0.1:7070",
    token: "lft_x",
    tokenFile: ".landfall/server/admin-token",
    app: "guestbook",
    install: "demo",
    readyMs: 1000,
    colours: false,
    landfall: "bin/landfall",
    options: " --data ../elsewhere",
  };

  const shown = welcomeLines(facts).join("\n");
  const hidden = welcomeLines({ ...facts, token: null }).join("\n");

  for (const part of [
    "http://127.0.0.1:4000",
    "/docs",
    "lft_x",
    "admin-token",
    "Ctrl-C",
    "demo --data ../",
  ]) {
    assert(shown.includes(part), part);
  }
  assert(!hidden.includes("lft_x") && hidden.includes("in .landfall/server/admin-token"), hidden);
  assert.doesNotMatch(hidden, /null|also in/);
});
