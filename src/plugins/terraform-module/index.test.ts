/** `terraform_module` keeps the contract of plugins, with the real program and the store's backend. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { startStateBackend } from "../../executor/state-backend.ts";
import type { JobId } from "../../model/ids.ts";
import { pluginCommand } from "../../plugin/plugin.fixture.ts";
import { askPlugin, testPlugin } from "../../plugin/plugin-conformance.ts";
import { createMemoryStore } from "../../store/memory-store.ts";
import { splitVariables } from "./config.ts";

const command = pluginCommand("terraform_module");
const fence = {
  component: "c",
  jobId: `job_${"0".repeat(24)}` as JobId,
  epoch: { generation: 1, n: 1 },
};

if (hasTerraform()) {
  testPlugin({
    command,
    type: "terraform_module",
    config: { vars: { greeting: "hello", secret: "hunter22", names: '["a", "b"]' } },
    badConfig: { vars: "none" },
    sourceFiles: {
      "main.tf": `
        variable "greeting" { type = string }
        variable "names" { type = list(string) }
        variable "secret" {
          type      = string
          sensitive = true
        }
        resource "terraform_data" "kept" { input = "\${var.greeting} \${join("-", var.names)}" }
        output "greeting" { value = terraform_data.kept.output }
        output "secret" {
          value     = var.secret
          sensitive = true
        }`,
      "terraform.tfstate": "{}",
    },
    outputs: { greeting: { sensitive: false }, secret: { sensitive: true } },
    withPlace: async (use) => {
      const store = createMemoryStore();
      await store.openFence(fence);
      const backend = await startStateBackend({
        store,
        fence,
        isReadOnly: false,
        random: randomBytes,
      });
      const { address, username, password } = backend;
      try {
        await use({ supervisorDirectory: null, stateBackend: { address, username, password } });
      } finally {
        await backend.close();
      }
    },
  });
}

test("terraform_module: without the program the outcome says that it is missing", async () => {
  const { outcome } = await askPlugin(["/usr/bin/env", "PATH=/nowhere", ...command], {
    version: 1,
    operation: "plan",
    job: { id: fence.jobId, epoch: fence.epoch },
    install: null,
    component: { name: "c", type: "terraform_module", config: {} },
    sourceDirectory: null,
    outputDirectory: null,
    artifactDirectory: "/nowhere",
    artifactDigest: null,
    state: null,
    plan: null,
    workDirectory: "/tmp",
    supervisorDirectory: null,
    stateBackend: { address: "http://127.0.0.1:1", username: "", password: "" },
    sandbox: null,
  });

  assert.equal(outcome?.code, "missing_tool");
});

test("terraform_module: a variable that a file sets too goes where it wins", () => {
  const config = {
    vars: { a: "1", b: "2", c: [3] },
    var_file: [{ contents: 'a = "9"\n' }],
    env_vars: {},
  };

  assert.deepEqual(splitVariables(config), {
    environment: { TF_VAR_b: "2" },
    file: { a: "1", c: [3] },
  });
});

function hasTerraform(): boolean {
  try {
    execFileSync("/bin/sh", ["-c", "command -v terraform || command -v tofu"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}
