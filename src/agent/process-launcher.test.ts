/** The process launcher in each of its three ways, with real programs, as whoever runs the tests. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { jobFiles } from "../protocol/job-folder.ts";
import { ownProcess, readProcess } from "../protocol/process-identity.ts";
import { chooseIsolation, type Isolation } from "./isolation.ts";
import { settled, testLauncher } from "./launcher-suite.ts";
import { createProcessLauncher } from "./process-launcher.ts";
import { childrenOf } from "./process-tree.ts";

const environment = { PATH: "/usr/local/bin:/usr/bin:/bin" };
const best = await chooseIsolation("auto", environment);
const withoutBubblewrap = await chooseIsolation("none", environment);
const available = new Set<Isolation>(["plain", best.isolation, withoutBubblewrap.isolation]);

function create(isolation: Isolation, agentDirectory: string, readOnlyPaths: string[] = []) {
  return createProcessLauncher({
    isolation,
    visible: { readOnlyPaths, writablePaths: [], agentDirectory },
    lockDirectory: join(agentDirectory, "locks"),
  });
}

for (const isolation of ["bubblewrap", "namespace", "plain"] as const) {
  const skip = available.has(isolation) ? false : `${isolation} does not work here`;
  describe(isolation, { skip }, () =>
    testLauncher(isolation, (folder) => create(isolation, folder)),
  );
}

test("a pid that now belongs to another process is neither running nor killed", async () => {
  await inFolder(async (directory) => {
    const folder = join(directory, "job_reused.1.1");
    await mkdir(folder);
    // The leader of its own session, with a child in it: neither may be taken for the job's.
    const innocent = spawn("sh", ["-c", "sleep 60 & wait"], { stdio: "ignore", detached: true });
    const pid = innocent.pid ?? 0;
    while (childrenOf(pid).length === 0) await new Promise(setImmediate);
    const record = readProcess(pid);
    assert(record);
    await writeRecord(folder, { ...record, startTime: "1" });

    const found = await create("plain", directory).find(folder);
    await create("plain", directory).ask(folder);
    await create("plain", directory).end(folder);

    assert.equal(found, "gone");
    assert.deepEqual(readProcess(record.pid), record);
    assert.equal(childrenOf(pid).length, 1);
    process.kill(-pid, "SIGKILL");
  });
});

test("a record of an earlier boot is gone, whatever runs under its pid now", async () => {
  await inFolder(async (directory) => {
    const folder = join(directory, "job_rebooted.1.1");
    await mkdir(folder);
    await writeRecord(folder, { ...ownProcess(), bootId: "00000000-0000-0000-0000-000000000000" });

    assert.equal(await create("plain", directory).find(folder), "gone");
    await create("plain", directory).end(folder);
  });
});

test("under bubblewrap a job sees its own folder and what is named, not the agent's", {
  skip: available.has("bubblewrap") ? false : "bubblewrap does not work here",
}, async () => {
  await inFolder(async (directory) => {
    const agentDirectory = join(directory, "agent");
    const folder = join(agentDirectory, "jobs", "job_sandboxed.1.1");
    const neighbour = join(agentDirectory, "jobs", "job_neighbour.1.1");
    await mkdir(folder, { recursive: true });
    await mkdir(neighbour);
    await writeFile(join(agentDirectory, "identity.json"), "secret");
    await writeFile(join(directory, "bundle.js"), "visible");
    const look = `ls ${agentDirectory} ${agentDirectory}/jobs >"$1/seen" 2>&1
      cat ${directory}/bundle.js >>"$1/seen" 2>&1
      echo x >${directory}/bundle.js; echo '{"pid":1}' >"$1/${jobFiles.process}"; rm -f "$1/${jobFiles.process}"; true`;

    // The whole parent is visible: the agent's folder inside it must be hidden all the same.
    const launcher = create("bubblewrap", agentDirectory, [directory]);
    await launcher.launch(folder, plainLaunch(look));
    const found = await settled(launcher, folder);

    assert.deepEqual(found, { exitCode: 0 });
    const seen = await readFile(join(folder, "seen"), "utf8");
    assert.match(seen, /job_sandboxed\.1\.1/);
    assert.match(seen, /visible/);
    assert.doesNotMatch(seen, /identity|neighbour/);
    assert.equal(await readFile(join(directory, "bundle.js"), "utf8"), "visible");
    assert.match(await readFile(join(folder, jobFiles.process), "utf8"), /startTime/);
  });
});

test("an executor goes on, is found and is ended when bwrap itself was killed", {
  skip: available.has("bubblewrap") ? false : "bubblewrap does not work here",
}, async () => {
  await inFolder(async (directory) => {
    const folder = join(directory, `job_orphan${process.pid}.1.1`);
    await mkdir(folder);
    const launcher = create("bubblewrap", join(directory, "agent"));
    const body = 'while :; do : >"$1/alive"; sleep 0.02; done';
    await launcher.launch(folder, plainLaunch(body));
    while (!existsSync(join(folder, "alive"))) await new Promise(setImmediate);
    const { pid } = JSON.parse(await readFile(join(folder, jobFiles.process), "utf8"));

    process.kill(pid, "SIGKILL");
    while (readProcess(pid) !== null) await new Promise(setImmediate);
    await rm(join(folder, "alive"));
    while (!existsSync(join(folder, "alive"))) await new Promise(setImmediate);
    const orphaned = await launcher.find(folder);
    await launcher.end(folder);

    assert.equal(orphaned, "running");
    assert.notEqual(await launcher.find(folder), "running");
  });
});

function plainLaunch(body: string) {
  const command = ["/bin/sh", "-c", body, "executor"];
  return { command, environment, writableFolders: [], component: null };
}

async function writeRecord(
  folder: string,
  record: { pid: number; startTime: string; bootId: string },
): Promise<void> {
  const session = { session: record.pid, sessionStartTime: record.startTime };
  await writeFile(
    join(folder, jobFiles.process),
    JSON.stringify({ ...record, ...session, isolation: "plain" }),
  );
}

async function inFolder(act: (directory: string) => Promise<void>): Promise<void> {
  const directory = await realpath(await mkdtemp(join(tmpdir(), "landfall-launcher-")));
  try {
    await act(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
