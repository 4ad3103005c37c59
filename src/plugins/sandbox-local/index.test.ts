/** A local sandbox is made, completed, used and removed, through the real executor. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { AgentConfiguration } from "../../agent/configuration.ts";
import { type Trial, withTrial } from "../../executor/trial.fixture.ts";
import { bundledPrograms } from "../../plugin/plugin.fixture.ts";
import { DesiredProcess, ProcessStatus } from "../../protocol/supervisor-folder.ts";
import { openFolderStore } from "../../store/folder-store.ts";

const code = "lfe_secret-enrolment-code.0123456789abcdef";
const programs = {
  agent: ["/bin/sh", "-c", "exec sleep 600", "agent", "--config"],
  registry: [process.execPath, join(bundledPrograms(), "registry.mjs"), "--config"],
  executor: [process.execPath, join(bundledPrograms(), "executor.mjs")],
};

test("provision makes everything that an install consists of, and tells no secret", () =>
  withTrial(async (trial) => {
    const { outcome, told } = await provision(trial);

    assert.equal(outcome.status, "succeeded", told);
    const install = join(trial.folder, "installs", trial.install.id);
    const config = AgentConfiguration.parse(await readJson(join(install, "agent", "config.json")));
    const password = config.place.registry?.password ?? assert.fail();
    assert(!told.includes(password) && !told.includes(code), told);
    // No outgoing connection may take its port while it is down.
    assert(Number(new URL(config.place.registry?.url ?? "").port) < 20_000);
    assert.deepEqual(await readJson(join(install, "agent", "enrolment.json")), {
      serverUrl: "http://127.0.0.1:1",
      code,
    });
    for (const name of ["@agent", "@registry"]) {
      DesiredProcess.parse(await readJson(join(install, "supervisor", "desired", `${name}.json`)));
    }
    const capabilities = outcome.outputs?.capabilities;
    assert(capabilities && !capabilities.sensitive && Array.isArray(capabilities.value));
    assert(capabilities.value.includes("process"));
    const store = await openFolderStore(join(install, "store"));
    assert(await store.read("sandbox/outputs"));
    await store.close();
  }));

test("provision completes what was cut short, and keeps what exists", () =>
  withTrial(async (trial) => {
    const install = join(trial.folder, "installs", trial.install.id);
    const first = await provision(trial);
    const account = await readFile(join(install, "account.json"), "utf8");
    const key = await readFile(join(install, "store", "store.key"));
    const registry = await readFile(join(install, "registry", "config.json"), "utf8");
    for (const lost of ["sandbox.json", "agent/config.json", "supervisor/desired/@agent.json"]) {
      await rm(join(install, lost));
    }

    const second = await provision(trial);
    await writeFile(join(install, "agent", "identity.json"), "{}");
    const third = await provision(trial);

    assert.equal(second.outcome.status, "succeeded", second.told);
    assert.deepEqual(second.outcome.outputs, first.outcome.outputs);
    assert.equal(second.outcome.outputsHash, first.outcome.outputsHash);
    assert.equal(await readFile(join(install, "account.json"), "utf8"), account);
    assert.deepEqual(await readFile(join(install, "store", "store.key")), key);
    assert.equal(await readFile(join(install, "registry", "config.json"), "utf8"), registry);
    assert.equal(third.outcome.status, "succeeded", third.told);
    assert(!(await readdir(join(install, "agent"))).includes("enrolment.json"));
    assert((await readdir(install)).includes("sandbox.json"));
  }));

test("the supervisor runs the sandbox's programs, and destroy leaves nothing of them", () =>
  withTrial(async (trial) => {
    await provision(trial);
    const install = join(trial.folder, "installs", trial.install.id);
    const supervisor = spawn(
      process.execPath,
      [join(bundledPrograms(), "supervisor.mjs"), "--directory", join(install, "supervisor")],
      { stdio: "ignore" },
    );
    const exited = new Promise((resolve) => supervisor.once("exit", resolve));
    try {
      await until(async () => (await stateOf(install, "@registry")) === "healthy");
      await until(async () => (await stateOf(install, "@agent")) === "healthy");
      const account = (await readJson(join(install, "account.json"))) as { port: number };
      assert.equal((await fetch(`http://127.0.0.1:${account.port}/v2/`)).status, 401);

      const destroyed = await run(trial, "destroy");
      const again = await run(trial, "destroy");

      assert.equal(destroyed.outcome.status, "succeeded", destroyed.told);
      assert.equal(again.outcome.status, "succeeded", again.told);
      assert.deepEqual(await readdir(join(trial.folder, "installs")), []);
      await assert.rejects(fetch(`http://127.0.0.1:${account.port}/v2/`));
    } finally {
      supervisor.kill("SIGTERM");
      await exited;
    }
  }));

function provision(trial: Trial) {
  return run(trial, "provision");
}

async function run(trial: Trial, operation: "provision" | "destroy") {
  const installsDirectory = join(trial.folder, "installs");
  await mkdir(installsDirectory, { recursive: true });
  const place = {
    storeDirectory: null,
    registry: null,
    supervisorDirectory: null,
    installsDirectory,
    programs,
  };
  const enrolment = { serverUrl: "http://127.0.0.1:1", code };
  return trial.run(
    {
      operation,
      plugin: "sandbox/local",
      component: null,
      sandbox: { type: "local", config: {} },
      artifact: null,
    },
    { place, credentials: { vendorRegistry: null, sourceUrl: null, enrolment } },
  );
}

async function stateOf(install: string, name: string): Promise<string | null> {
  const path = join(install, "supervisor", "status", `${name}.json`);
  const text = await readFile(path, "utf8").catch(() => null);
  return text === null ? null : ProcessStatus.parse(JSON.parse(text)).state;
}

async function readJson(path: string): Promise<unknown> {
  return JSON.parse(await readFile(path, "utf8"));
}

async function until(isMet: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 30_000;
  while (!(await isMet())) {
    assert(performance.now() < deadline, "waited in vain");
    await delay(20);
  }
}
