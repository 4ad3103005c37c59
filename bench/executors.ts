/**
 * The executor's bundle, with a stamp as its first instruction: the time, into the job's folder. The
 * same file is spawned bare and by the real agent, so the stamp costs both the same.
 */
import { spawn } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { bundlePrograms } from "../bin/bundle.ts";
import { makeJobFolder } from "../src/agent/job-files.ts";
import { createId } from "../src/model/ids.ts";
import { digestOf } from "../src/model/json.ts";
import { jobFolderName, type Place } from "../src/protocol/job-folder.ts";
import { encodePublicKey, keyIdOf, signDocument } from "../src/protocol/signed-document.ts";
import { createFolderStore } from "../src/store/folder-store.ts";
import { projectRoot } from "../test/promises.ts";
import { clockMs } from "./exchange.ts";

const stampFile = "first-instruction";
const stamp = `import { writeFileSync as stamp_ } from "node:fs";
stamp_(process.argv[2] + "/${stampFile}", String(process.hrtime.bigint()));
`;

export interface ExecutorPlace {
  readonly directory: string;
  /** The stamped bundle, with the plugins' program beside it. */
  readonly program: string;
  readonly place: Place;
}

/** Bundles, stamps, and makes the install's store that jobs write to. */
export async function prepareExecutors(directory: string): Promise<ExecutorPlace> {
  const bundles = await bundlePrograms(projectRoot, join(projectRoot, "dist"));
  await mkdir(join(directory, "programs"), { recursive: true });
  const program = join(directory, "programs", "executor.mjs");
  await writeFile(program, `${stamp}${await readFile(bundles.executor, "utf8")}`);
  await copyFile(bundles.plugin, join(directory, "programs", "plugin.mjs"));
  const storeDirectory = join(directory, "store");
  await (await createFolderStore(storeDirectory)).close();
  const none = { registry: null, supervisorDirectory: null, installsDirectory: null };
  return { directory, program, place: { storeDirectory, ...none, programs: null } };
}

/** When the executor of this folder ran its first instruction; null before that. */
export async function readStamp(folder: string): Promise<number | null> {
  const text = await readFile(join(folder, stampFile), "utf8").catch(() => null);
  return text ? Number(text) / 1e6 : null;
}

/** A folder as the agent makes it, for a job like those that the server hands out. */
export async function makeFolder({ directory, place }: ExecutorPlace): Promise<string> {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const signing = { keyId: keyIdOf(publicKey), privateKey };
  const now = new Date();
  const jobId = createId("job", now, randomBytes);
  const epoch = { generation: 1, n: 1 };
  const manifest = await signDocument("landfall-manifest", manifestOf(jobId, now), signing);
  const payload = Buffer.from(manifest.split(".")[1] ?? "", "base64url");
  const grant = await signDocument(
    "landfall-grant",
    {
      version: 1,
      jobId,
      manifestDigest: digestOf(payload),
      agentId: createId("agt", now, randomBytes),
      epoch,
      serverTime: now.toISOString(),
      leaseSeconds: 30,
    },
    signing,
  );
  const parent = join(directory, "bare");
  await mkdir(parent, { recursive: true });
  const folder = join(parent, jobFolderName(jobId, epoch));
  const keys = { [signing.keyId]: encodePublicKey(publicKey) };
  const credentials = { vendorRegistry: null, sourceUrl: null, enrolment: null };
  await makeJobFolder(folder, { manifest, grant, keys, place, credentials });
  return folder;
}

/** Spawns the bundle on a folder and nothing else; gives how long its first instruction and its end took. */
export async function spawnBare(
  { program }: ExecutorPlace,
  folder: string,
): Promise<{ startMs: number; endMs: number }> {
  const begin = clockMs();
  const child = spawn(process.execPath, [program, folder], {
    cwd: folder,
    env: { PATH: "/usr/local/bin:/usr/bin:/bin", HOME: join(folder, "work"), LANG: "C.UTF-8" },
    stdio: "ignore",
  });
  const [code] = (await once(child, "exit")) as [number | null];
  const endMs = clockMs() - begin;
  const started = await readStamp(folder);
  if (code !== 0 || started === null) throw new Error(`The executor ended with ${code}.`);
  return { startMs: started - begin, endMs };
}

/** A `destroy` of a component that was never applied: the whole way through executor and plugin. */
function manifestOf(jobId: string, now: Date): object {
  return {
    version: 1,
    jobId,
    operation: "destroy",
    createdAt: now.toISOString(),
    app: { id: createId("app", now, randomBytes), name: "bench" },
    install: { id: createId("ins", now, randomBytes), name: "bench" },
    plugin: "noop",
    component: { name: `c${jobId.slice(-6)}`, type: "noop", config: {} },
    sandbox: null,
    source: null,
    artifact: null,
    inputs: {},
    dependencies: {},
    approval: null,
    fingerprint: null,
    timeoutSeconds: 600,
  };
}
