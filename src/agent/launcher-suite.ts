/**
 * The suite that every launcher must pass: `testLauncher(name, create)`. It launches real programs
 * and looks for what is left of them.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { jobFiles } from "../protocol/job-folder.ts";
import type { Found, Launcher } from "./launcher.ts";
import { findTree, signal } from "./process-tree.ts";

const waitMs = 10_000;
const environment = { PATH: "/usr/local/bin:/usr/bin:/bin", COLOUR: "green" };

/** Declares the conformance tests of one launcher; `create` is given the folder that holds all job folders. */
export function testLauncher(name: string, create: (directory: string) => Launcher): void {
  let directory = "";
  let launcher: Launcher;
  let count = 0;

  beforeEach(async () => {
    directory = await realpath(await mkdtemp(join(tmpdir(), "landfall-launcher-")));
    launcher = create(directory);
  });
  afterEach(async () => {
    // Also what a launcher that fails its test has left.
    for (const left of commandLinesNaming(directory)) signal(Number.parseInt(left, 10), "SIGKILL");
    await rm(directory, { recursive: true, force: true });
  });

  /** `body` is a shell script; `$1` is the job's folder. The trap makes it hear SIGTERM as pid 1 too. */
  async function launch(body: string, component: string | null = null): Promise<string> {
    const folder = join(directory, `job_${process.pid}${Date.now()}${count++}.1.1`);
    await mkdir(folder, { mode: 0o700 });
    const command = ["/bin/sh", "-c", body, "executor"];
    await launcher.launch(folder, { command, environment, writableFolders: [], component });
    return folder;
  }

  test(`${name}: the exit code is found, and found again`, async () => {
    const folder = await launch("exit 7");

    assert.deepEqual(await settled(launcher, folder), { exitCode: 7 });
    assert.deepEqual(await launcher.find(folder), { exitCode: 7 });
    await launcher.end(folder);
  });

  test(`${name}: a folder in which nothing was launched holds nothing`, async () => {
    const folder = join(directory, "job_never.1.1");
    await mkdir(folder);

    assert.equal(await launcher.find(folder), "gone");
    await launcher.ask(folder);
    await launcher.end(folder);
  });

  test(`${name}: the executor gets its folder as the last argument and only the given environment`, async () => {
    const folder = await launch('env >"$1/seen"; pwd >>"$1/seen"');
    await settled(launcher, folder);

    const seen = (await readFile(join(folder, "seen"), "utf8")).trim().split("\n");
    const names = seen.map((line) => line.split("=")[0]).filter((name) => name !== "_");
    assert.deepEqual(
      new Set(names),
      new Set(["PATH", "COLOUR", "LANDFALL_JOB", "PWD", ...extras(seen), folder]),
    );
  });

  test(`${name}: what the executor prints is in its folder`, async () => {
    const folder = await launch("echo out; echo err >&2");
    await settled(launcher, folder);

    assert.equal(await readFile(join(folder, jobFiles.stderr), "utf8"), "out\nerr\n");
  });

  test(`${name}: a program that does not exist is an exit code, not an error`, async () => {
    const folder = join(directory, `job_${process.pid}${Date.now()}none.1.1`);
    await mkdir(folder);

    const command = ["/nonexistent/executor"];
    await launcher.launch(folder, { command, environment, writableFolders: [], component: null });

    const found = await settled(launcher, folder);
    assert(typeof found === "object" && found.exitCode !== 0, JSON.stringify(found));
  });

  test(`${name}: asking reaches the executor and none of its children`, async () => {
    const folder = await launch(
      `trap 'echo asked >"$1/asked"; kill -9 $child; exit 0' TERM
       sh -c 'trap "echo bad >$0/child" TERM; while :; do sleep 0.05; done' "$1" & child=$!
       : >"$1/ready"; while :; do sleep 0.02; done`,
    );
    await until(() => exists(join(folder, "ready")));
    assert.equal(await launcher.find(folder), "running");

    await launcher.ask(folder);

    assert.deepEqual(await settled(launcher, folder), { exitCode: 0 });
    assert.equal(await exists(join(folder, "asked")), true);
    assert.equal(await exists(join(folder, "child")), false);
    await launcher.end(folder);
  });

  test(`${name}: ending leaves no process of the tree, whatever it did to hide`, async () => {
    const folder = await launch(
      `trap '' TERM
       setsid sh -c 'trap "" TERM; : >"$0/one"; while :; do sleep 0.05; done' "$1" &
       env -i PATH="$PATH" sh -c ': >"$0/two"; while :; do sleep 0.05; done' "$1" &
       : >"$1/three"; while :; do sleep 0.05; done`,
    );
    const markers = ["one", "two", "three"].map((marker) => join(folder, marker));
    await until(async () => (await Promise.all(markers.map(exists))).every(Boolean));
    const name = folder.slice(directory.length + 1);
    assert(findTree(name, null).length >= 2, "the suite sees the tree");

    await launcher.end(folder);

    assert.notEqual(await launcher.find(folder), "running");
    assert.deepEqual(findTree(name, null), []);
    assert.deepEqual(commandLinesNaming(folder), []);
  });

  test(`${name}: an executor of the same component is ended, though its folder is not known`, async () => {
    const component = `ins_${process.pid}${Date.now()}/api`;
    const polite = await launch(
      `trap 'echo asked >"$1/asked"; exit 0' TERM; : >"$1/ready"; while :; do sleep 0.02; done`,
      component,
    );
    const hiding = await launch(
      `trap '' TERM
       (env -i PATH="$PATH" sh -c 'trap "" TERM; while :; do sleep 0.05; done' "$1" &)
       setsid sh -c 'trap "" TERM; : >"$0/ready"; while :; do sleep 0.05; done' "$1" &
       while :; do sleep 0.05; done`,
      component,
    );
    const other = await launch(`: >"$1/ready"; while :; do sleep 0.02; done`, `${component}2`);
    const folders = [polite, hiding, other];
    await until(async () =>
      (await Promise.all(folders.map((folder) => exists(join(folder, "ready"))))).every(Boolean),
    );

    const ended = await launcher.endOthers(component, { generation: 1, graceMs: 500 });

    assert.deepEqual(new Set(ended), new Set([basename(polite), basename(hiding)]));
    assert.equal(await exists(join(polite, "asked")), true, "it was asked first");
    assert.deepEqual(executorsNaming(polite), []);
    assert.deepEqual(executorsNaming(hiding), []);
    assert.equal(await launcher.find(other), "running");
    assert.deepEqual(await launcher.endOthers(component, { generation: 1, graceMs: 500 }), []);
    await launcher.end(other);
  });

  test(`${name}: a stopped executor of the same component is ended too`, async () => {
    const component = `ins_${process.pid}${Date.now()}/stopped`;
    const folder = await launch(`: >"$1/ready"; while :; do sleep 0.02; done`, component);
    await until(() => exists(join(folder, "ready")));
    const tree = findTree(basename(folder), null);
    for (const { pid } of tree) signal(pid, "SIGSTOP");

    const ended = await launcher.endOthers(component, { generation: 1, graceMs: 100 });

    assert.deepEqual(ended, [basename(folder)]);
    assert.deepEqual(findTree(basename(folder), null), []);
    assert.notEqual(await launcher.find(folder), "running");
  });

  test(`${name}: an executor of a newer generation is left alone, and the older agent is told`, async () => {
    const component = `ins_${process.pid}${Date.now()}/newer`;
    const folder = await launch(`: >"$1/ready"; while :; do sleep 0.02; done`, component);
    await until(() => exists(join(folder, "ready")));

    await assert.rejects(launcher.endOthers(component, { generation: 0, graceMs: 0 }), {
      code: "conflict",
      message: /was replaced/,
    });
    assert.equal(await launcher.find(folder), "running");
    await launcher.end(folder);
  });

  test(`${name}: two that want to start a component go one after the other`, async () => {
    const component = `ins_${process.pid}/alone`;
    const order: string[] = [];
    const act = (who: string) => async () => {
      order.push(`${who} in`);
      await new Promise((resolve) => setTimeout(resolve, 20));
      order.push(`${who} out`);
    };

    await Promise.all(["a", "b", "c"].map((who) => launcher.alone(component, act(who))));

    for (let index = 0; index < order.length; index += 2) {
      assert.equal(order[index + 1], order[index]?.replace("in", "out"));
    }
  });

  test(`${name}: an executor without a component is nobody's rival`, async () => {
    const folder = await launch(`: >"$1/ready"; while :; do sleep 0.02; done`);
    await until(() => exists(join(folder, "ready")));

    assert.deepEqual(await launcher.endOthers("", { generation: 1, graceMs: 0 }), []);
    assert.equal(await launcher.find(folder), "running");
    await launcher.end(folder);
  });

  test(`${name}: children that outlive the executor are ended with it`, async () => {
    const folder = await launch(
      `setsid sh -c ': >"$0/ready"; while :; do sleep 0.05; done' "$1" &
       while ! [ -e "$1/ready" ]; do sleep 0.02; done; exit 3`,
    );
    assert.deepEqual(await settled(launcher, folder), { exitCode: 3 });

    await launcher.end(folder);

    assert.deepEqual(findTree(folder.slice(directory.length + 1), null), []);
    assert.deepEqual(commandLinesNaming(folder), []);
  });
}

/** Polls until the executor has ended. */
export async function settled(launcher: Launcher, folder: string): Promise<Found> {
  await until(async () => (await launcher.find(folder)) !== "running");
  return launcher.find(folder);
}

/** Shells set a few variables of their own. */
function extras(seen: readonly string[]): string[] {
  return ["OLDPWD", "SHLVL"].filter((name) => seen.some((line) => line.startsWith(`${name}=`)));
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + waitMs;
  while (!(await condition())) {
    assert(Date.now() < deadline, `Waited ${waitMs} ms in vain.`);
    await sleep(10);
  }
}

async function exists(path: string): Promise<boolean> {
  return readFile(path).then(
    () => true,
    () => false,
  );
}

/** Without the shim, which outlives its executor for a moment to record the exit code. */
function executorsNaming(folder: string): string[] {
  return commandLinesNaming(folder).filter((line) => !line.includes("landfall-job"));
}

/** Every live process whose command line names the job's folder. */
function commandLinesNaming(folder: string): string[] {
  return readdirSync("/proc")
    .filter((pid) => /^\d+$/.test(pid))
    .flatMap((pid) => {
      try {
        const line = readFileSync(`/proc/${pid}/cmdline`, "latin1");
        return line.includes(folder) ? [`${pid} ${line}`] : [];
      } catch {
        return [];
      }
    });
}
