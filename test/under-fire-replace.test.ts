/** An agent is replaced while an executor of its own hangs: two of one component never live at once. */
import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { replaceFile } from "../src/files/replace-file.ts";
import { assertOnce } from "./chaos/assert-once.ts";
import { readLedger } from "./chaos/ledger.ts";
import { liveProcesses, type ProcessKind, signal } from "./chaos/processes.ts";
import { type Scene, shareScene } from "./chaos/scene.ts";

const shared = shareScene();

test("an agent is replaced in its own folder: what runs is adopted, goes on in its epoch, and ends once", async () => {
  const scene = shared();
  await scene.deploy([{ name: "goes_on", config: { sleep_ms: 4000, log_lines: 20 } }]);
  await scene.applying("goes_on");

  const code = await replace(scene);
  const enrolment = JSON.stringify({ code, serverUrl: scene.install.proxy.url });
  await replaceFile(join(scene.install.directory, "agent", "enrolment.json"), enrolment);
  await scene.settled();

  const story = await assertOnce(scene, "goes_on");
  assert(story.includes("adopted"), story.join(" "));
  assert.deepEqual(await scene.remains(), []);
});

test("an executor is stopped, its agent replaced by one in another folder: the new epoch waits until the old one is gone", async () => {
  const scene = shared();
  await scene.deploy([{ name: "hangs", config: { sleep_ms: 3000 } }]);
  await scene.applying("hangs");
  // The shim around it only records its end.
  const old = executorsOf(scene).filter(({ kind }) => kind !== "shim");
  for (const { pid } of old) signal(pid, "SIGSTOP");

  await replaceElsewhere(scene);
  await scene.settled();

  const [first, second, ...more] = await scene.applies("hangs");
  assert.deepEqual(
    [first?.epoch, first?.endMs, second?.epoch, more.length],
    ["2.1", null, "3.2", 0],
  );
  const phases = (await readLedger(scene.product.ledger)).map(({ phase }) => phase);
  assert(!phases.includes("overlap"), "the stopped one held its lock until it was gone");
  const left = liveProcesses(scene.product.data).filter(({ pid }) =>
    old.some((o) => o.pid === pid),
  );
  assert.deepEqual(left, []);
  assert.equal((await scene.applyJob("hangs")).state, "succeeded");
});

function executorsOf({ product }: Scene) {
  return liveProcesses(product.data).filter(({ jobFolder }) => jobFolder !== null);
}

async function replace({ product, install }: Scene): Promise<string> {
  const path = `/api/installs/${install.name}/replace-agent`;
  return (await product.api.post<{ code: string }>(path)).code;
}

/** As on a new machine that has the install's store, but nothing of the old agent's own folder. */
async function replaceElsewhere(scene: Scene): Promise<void> {
  const { directory, proxy } = scene.install;
  const folder = join(directory, "agent-2");
  const file = join(folder, "config.json");
  const enrolmentFile = join(folder, "enrolment.json");
  const config = await readObject(join(directory, "agent", "config.json"));
  const code = await replace(scene);
  await mkdir(folder, { mode: 0o700 });
  await replaceFile(enrolmentFile, JSON.stringify({ code, serverUrl: proxy.url }));
  await replaceFile(file, JSON.stringify({ ...config, directory: folder, enrolmentFile }));

  // Its supervisor must not stop the old agent in order, which would end its executors.
  const [supervisor, agent] = [processOf(scene, "supervisor"), processOf(scene, "agent")];
  signal(supervisor, "SIGSTOP");
  const desiredFile = join(directory, "supervisor/desired/@agent.json");
  const desired = await readObject(desiredFile);
  const command = (desired.command as string[]).map((part) =>
    part === join(directory, "agent", "config.json") ? file : part,
  );
  await replaceFile(desiredFile, JSON.stringify({ ...desired, command, revision: "elsewhere" }));
  signal(agent, "SIGKILL");
  signal(supervisor, "SIGCONT");
}

function processOf({ product, install }: Scene, kind: ProcessKind): number {
  const found = liveProcesses(product.data).find(
    (one) => one.kind === kind && one.place === install.id,
  );
  assert(found, `${kind} of ${install.name}`);
  return found.pid;
}

async function readObject(file: string): Promise<Record<string, unknown>> {
  return JSON.parse(await readFile(file, "utf8"));
}
