/**
 * The suite that every plugin of a component type passes, at the process boundary, in whatever language
 * it is written: build, plan, apply, plan again, destroy, and what must never happen on the way.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import type { JobId } from "../model/ids.ts";
import { digestOf, type Json, type JsonObject } from "../model/json.ts";
import { PluginEvent, type PluginRequest } from "../protocol/plugin-request.ts";

const runTimeoutMs = 60_000;

/** What lies around a component while a plugin works on it. */
export interface PluginPlace {
  readonly supervisorDirectory: string | null;
  readonly stateBackend: PluginRequest["stateBackend"];
}

export interface PluginTrial {
  readonly command: readonly string[];
  readonly type: string;
  /** A configuration that works, and one that cannot. */
  readonly config: JsonObject;
  readonly badConfig: JsonObject;
  readonly sourceFiles: Readonly<Record<string, string>>;
  /** Outputs that an apply must give, and which of them are sensitive. */
  readonly outputs: Readonly<Record<string, { sensitive: boolean }>>;
  /** Makes a place for one test, and takes it away. */
  readonly withPlace?: (use: (place: PluginPlace) => Promise<void>) => Promise<void>;
}

/** What one run of a plugin came to. */
export interface PluginAnswer {
  readonly events: readonly PluginEvent[];
  readonly outcome: Extract<PluginEvent, { type: "outcome" }> | null;
  readonly exitCode: number | null;
  readonly stderr: string;
}

const nowhere: PluginPlace = { supervisorDirectory: null, stateBackend: null };

/** Registers the suite for one plugin. */
export function testPlugin(trial: PluginTrial): void {
  const withPlace = trial.withPlace ?? ((use) => use(nowhere));
  const check = (sentence: string, use: (tried: TriedPlugin) => Promise<void>) =>
    test(`${trial.type}: ${sentence}`, () =>
      withFolder((folder) => withPlace((place) => use(createTried(trial, folder, place)))));

  check("a build of the same source gives the same files", async (tried) => {
    await tried.build("first");
    await tried.build("second");

    assert.deepEqual(await snapshot(tried.path("first")), await snapshot(tried.path("second")));
  });

  check("a plan changes nothing and can be repeated", async (tried) => {
    await tried.build("artifact");
    const before = await tried.snapshot();

    const first = await tried.plan(null);
    const second = await tried.plan(null);

    assert.equal(first.changes, true);
    assert.deepEqual(
      { diff: second.diff, changes: second.changes },
      { diff: first.diff, changes: first.changes },
    );
    assert.deepEqual(await tried.snapshot(), before);
  });

  check(
    "a plan that is applied gives the outputs, and then there is nothing to change",
    async (tried) => {
      await tried.build("artifact");
      const applied = await tried.apply((await tried.plan(null)).plan, null);

      assert.deepEqual(applied.outputs, trial.outputs);
      const again = await tried.plan(applied.state);
      assert.equal(again.changes, false, again.diff);
      const appliedAgain = await tried.apply(again.plan, applied.state);
      assert.deepEqual(appliedAgain.outputs, trial.outputs);
      await tried.destroy(applied.state);
    },
  );

  check("destroy removes what apply made, and is harmless when done again", async (tried) => {
    await tried.build("artifact");
    const before = await tried.snapshot();
    const { state } = await tried.apply((await tried.plan(null)).plan, null);

    await tried.destroy(state);
    assert.deepEqual(await tried.snapshot(), before);

    await tried.destroy(state);
    await tried.destroy(null);
  });

  check("what it cannot do is an outcome, not a crash", async (tried) => {
    await tried.build("artifact");
    const requests = [
      {
        ...tried.request("plan"),
        component: { name: "c", type: trial.type, config: trial.badConfig },
      },
      { ...tried.request("provision") },
      { ...tried.request("plan"), operation: "dance" },
      {},
      "not a request",
    ];

    for (const request of requests) {
      const answer = await askPlugin(trial.command, request);
      assert.equal(answer.outcome?.status, "failed", JSON.stringify(answer));
      assert(answer.outcome.message, "a failure says why");
      assert.equal(answer.exitCode, 0);
    }
  });
}

type TriedPlugin = ReturnType<typeof createTried>;

function createTried(trial: PluginTrial, folder: string, place: PluginPlace) {
  const path = (name: string) => join(folder, name);

  function request(operation: PluginRequest["operation"], given: Partial<PluginRequest> = {}) {
    return {
      version: 1,
      operation,
      job: { id: `job_${"0".repeat(24)}` as JobId, epoch: { generation: 1, n: 1 } },
      install: { id: `ins_${"0".repeat(24)}`, name: "acme" },
      component: { name: "c", type: trial.type, config: trial.config },
      sourceDirectory: null,
      outputDirectory: null,
      artifactDirectory: operation === "build" ? null : path("artifact"),
      artifactDigest: operation === "build" ? null : digestOf("artifact"),
      state: null,
      plan: null,
      workDirectory: path("work"),
      sandbox: null,
      ...place,
      ...given,
    } satisfies PluginRequest;
  }

  async function run(operation: PluginRequest["operation"], given: Partial<PluginRequest>) {
    await rm(path("work"), { recursive: true, force: true });
    await mkdir(path("work"), { recursive: true });
    const answer = await askPlugin(trial.command, request(operation, given));
    assert.equal(answer.outcome?.status, "succeeded", JSON.stringify(answer, null, 1));
    assert.equal(answer.exitCode, 0);
    return answer;
  }

  return {
    path,
    request,
    snapshot: async () => ({
      artifact: await snapshot(path("artifact")),
      place: place.supervisorDirectory
        ? // The rest is the supervisor's own.
          await snapshot(place.supervisorDirectory, ["desired", "data"])
        : {},
    }),
    async build(name: string) {
      const source = path(`source-of-${name}`);
      for (const [file, text] of Object.entries(trial.sourceFiles)) {
        await mkdir(dirname(join(source, file)), { recursive: true });
        await writeFile(join(source, file), text);
      }
      await mkdir(source, { recursive: true });
      await mkdir(path(name), { recursive: true });
      await run("build", { sourceDirectory: source, outputDirectory: path(name) });
    },
    async plan(state: Json) {
      const { events } = await run("plan", { state });
      const plans = events.filter((event) => event.type === "plan");
      assert.equal(plans.length, 1);
      const [plan] = plans;
      assert(plan);
      return plan;
    },
    async apply(plan: Json, state: Json) {
      const { events } = await run("apply", { plan, state });
      const outputs: Record<string, { sensitive: boolean }> = {};
      let newState: Json = state;
      for (const event of events) {
        if (event.type === "output") outputs[event.name] = { sensitive: event.sensitive };
        if (event.type === "state") newState = event.state;
      }
      return { outputs, state: newState };
    },
    destroy: (state: Json) => run("destroy", { state }),
  };
}

/** Starts the plugin, gives it the request and hears it to its end. */
export async function askPlugin(
  command: readonly string[],
  request: unknown,
): Promise<PluginAnswer> {
  const [program = "", ...args] = command;
  const child = spawn(program, args, {
    stdio: ["pipe", "pipe", "pipe"],
    env: { PATH: "/usr/local/bin:/usr/bin:/bin", LANG: "C.UTF-8" },
    timeout: runTimeoutMs,
    killSignal: "SIGKILL",
  });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (text) => {
    stdout += text;
  });
  child.stderr.on("data", (text) => {
    stderr += text;
  });
  child.stdin.on("error", () => {});
  child.stdin.end(typeof request === "string" ? request : JSON.stringify(request));
  const exitCode = await new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve(code));
  });
  const lines = stdout.split("\n").filter((line) => line !== "");
  const events = lines.map((line) => PluginEvent.parse(JSON.parse(line)));
  const outcomes = events.filter((event) => event.type === "outcome");
  assert(outcomes.length <= 1, "more than one outcome");
  return { events, outcome: outcomes[0] ?? null, exitCode, stderr };
}

/** Every file below a folder with the digest of its content. */
async function snapshot(
  directory: string,
  within: readonly string[] | null = null,
): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  const entries = await readdir(directory, { withFileTypes: true, recursive: true });
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name);
    const name = path.slice(directory.length + 1);
    const isMeant = within === null || within.includes(name.split("/")[0] ?? "");
    if (!isMeant || !entry.isFile()) continue;
    found[name] = digestOf(await readFile(path));
  }
  return found;
}

async function withFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "landfall-plugin-"));
  try {
    await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
