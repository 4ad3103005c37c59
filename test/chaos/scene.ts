/** A small stage for one scenario: the whole product with an install or two, and a few components. */
import { mkdtemp, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before } from "node:test";
import type { AppConfig } from "../../src/model/app-config.ts";
import type { JsonObject } from "../../src/model/json.ts";
import type { InstallView, SyncAnswer } from "../../src/protocol/api.ts";
import { killProcess, processesOf, until } from "../system.ts";
import { appName } from "./app.ts";
import { openArena } from "./arena.ts";
import { type JobRow, jobsSince } from "./invariants.ts";
import { type Execution, executionsOf, type LedgerEntry, readLedger } from "./ledger.ts";
import type { Install, Product, ProductOptions } from "./product.ts";
import { awaitQuiet, findRemains } from "./remains.ts";
import { awaitRelease } from "./round.ts";

export interface Part {
  readonly name: string;
  readonly dependencies?: readonly string[];
  /** Of the `noop` plugin; the ledger is added. */
  readonly config: JsonObject;
}

export interface Scene {
  readonly product: Product;
  readonly install: Install;
  /** Syncs, builds, and asks every install to take the release. */
  deploy(parts: readonly Part[]): Promise<void>;
  /** Waits until every install is at rest at the newest release. */
  settled(timeoutMs?: number): Promise<void>;
  /** Waits until a component's apply runs in the first install. */
  applying(component: string): Promise<void>;
  /** What ran of a component's apply in the first install. */
  applies(component: string): Promise<Execution[]>;
  applyJob(component: string): Promise<JobRow>;
  /** What the audit log tells of a job, in order. */
  story(jobId: string): Promise<string[]>;
  /** Waits until nothing is left of any job, and says what is. */
  remains(): Promise<string[]>;
}

interface TestContext {
  after(work: () => Promise<void>): void;
}

const settleMs = 60_000;
const position = { file: "scene", line: 1, column: 1 };

/** Opens the stage; everything of it is gone when the test is over. */
export async function openScene(
  t: TestContext,
  options: Partial<Omit<ProductOptions, "data">> & { data?: string } = {},
): Promise<Scene> {
  const data = options.data ?? (await realpath(await mkdtemp(join(tmpdir(), "lf-scene-"))));
  const product = await openArena(data, { installs: ["north"], ...options });
  t.after(async () => {
    await product.database.close();
    await product.stop();
    for (const { pid } of processesOf(data)) killProcess(pid, "SIGKILL");
    await until(() => processesOf(data).length === 0, "the processes of the scene are gone");
    if (options.data === undefined) await rm(data, { recursive: true, force: true });
  });
  const [install] = product.installs;
  if (!install) throw new Error("Expected a scene with an install.");
  return sceneOf(product, install);
}

/** One stage for all tests of a file, opened before the first and gone after the last. */
export function shareScene(): () => Scene {
  const cleaning: (() => Promise<void>)[] = [];
  let scene: Scene | null = null;
  before(async () => {
    scene = await openScene({ after: (work) => void cleaning.push(work) });
  });
  after(async () => {
    for (const clean of cleaning) await clean();
  });
  return () => {
    if (!scene) throw new Error("Expected the scene to be open.");
    return scene;
  };
}

function sceneOf(product: Product, install: Install): Scene {
  let release = 0;
  const entries = async () =>
    (await readLedger(product.ledger)).filter(
      (entry: LedgerEntry) => entry.install === install.name && entry.operation === "apply",
    );
  const scene: Scene = {
    product,
    install,
    async deploy(parts) {
      const config = appOf(parts, product.ledger);
      const answer = await product.api.post<SyncAnswer>("/api/apps/sync", { config, sources: {} });
      release = await awaitRelease(product, answer);
      for (const { name } of product.installs) {
        await product.api.post(`/api/installs/${name}/deploy`, { release });
      }
    },
    async settled(timeoutMs = settleMs) {
      let views: InstallView[] = [];
      const look = async () => {
        const names = product.installs.map(({ name }) => name);
        views = await Promise.all(
          names.map((name) => product.api.get<InstallView>(`/api/installs/${name}`)),
        );
        return views.every(({ settled, releaseNumber }) => settled && releaseNumber === release);
      };
      await until(look, () => `every install is settled; got ${JSON.stringify(views)}`, timeoutMs);
    },
    async applying(component) {
      const runs = async () => (await entries()).some((entry) => entry.component === component);
      await until(runs, `${component} is being applied`, settleMs);
    },
    async applies(component) {
      return executionsOf((await entries()).filter((entry) => entry.component === component));
    },
    async applyJob(component) {
      const jobs = await jobsSince(product, "-infinity");
      const job = jobs.findLast(
        (one) =>
          one.operation === "apply" && one.component === component && one.install === install.name,
      );
      if (!job) throw new Error(`Expected a job that applies ${component}.`);
      return job;
    },
    async story(jobId) {
      const rows = await product.database.query<{ kind: string }>(
        "select kind from events where job_id = $1 and kind like 'job.%' order by id",
        [jobId],
      );
      return rows.map(({ kind }) => kind.slice("job.".length));
    },
    async remains() {
      const noise = await awaitQuiet(product);
      return [...(noise ? [noise] : []), ...(await findRemains(product))];
    },
  };
  return scene;
}

function appOf(parts: readonly Part[], ledger: string): AppConfig {
  return {
    name: appName,
    displayName: "Scene",
    description: "A few components that do nothing.",
    sandbox: { type: "local", config: {} },
    inputs: [],
    components: parts.map(({ name, dependencies = [], config }) => ({
      name,
      type: "noop",
      dependencies,
      source: null,
      config: { ...config, ledger },
      outputs: {},
      needs: [],
      position,
    })),
  };
}
