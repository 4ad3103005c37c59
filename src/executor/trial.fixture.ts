/**
 * A place in which jobs are executed for real, for tests: both registries on loopback, the install's
 * store, a server's key, and the executor as a process in a job's folder, as an agent would start it.
 */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { openSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Fault } from "../model/fault.ts";
import { createId } from "../model/ids.ts";
import type { Outcome } from "../model/job.ts";
import { digestOf, digestOfJson, type JsonObject } from "../model/json.ts";
import { authorizeBasic, authorizeBearer } from "../oci/authorize.ts";
import { packDirectoryToFile } from "../oci/pack.ts";
import { hashPassword } from "../oci/password.ts";
import { createRegistry } from "../oci/registry.ts";
import { listen } from "../oci/registry-listen.ts";
import { bundledPrograms } from "../plugin/plugin.fixture.ts";
import type { Manifest } from "../protocol/documents.ts";
import { JobEvent } from "../protocol/events.ts";
import {
  type JobCredentials,
  jobFiles,
  jobFolderName,
  type Place,
} from "../protocol/job-folder.ts";
import { encodePublicKey, keyIdOf, signDocument } from "../protocol/signed-document.ts";
import { createFolderStore, openFolderStore } from "../store/folder-store.ts";
import type { Store } from "../store/store.ts";

const program = join(bundledPrograms(), "executor.mjs");
export const registryPassword = "password-of-the-install-registry";
export const vendorToken = "token-of-the-vendor-registry";
export const repository = "guestbook/c";

export interface JobRun {
  readonly folder: string;
  readonly outcome: Outcome;
  readonly events: readonly JobEvent[];
  readonly exitCode: number | null;
  /** Everything that the executor left for the agent to read. */
  readonly told: string;
}

export interface Started {
  readonly child: ChildProcess;
  readonly folder: string;
  ended(): Promise<JobRun>;
}

export type Trial = Awaited<ReturnType<typeof createTrial>>;

/** Runs with a new place, and takes it away. */
export async function withTrial(use: (trial: Trial) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "landfall-executor-"));
  const trial = await createTrial(folder);
  try {
    await use(trial);
  } finally {
    await trial.close();
    await rm(folder, { recursive: true, force: true });
  }
}

async function createTrial(folder: string) {
  const key = generateKeyPairSync("ed25519");
  const keyId = keyIdOf(key.publicKey);
  const signingKey = { keyId, privateKey: key.privateKey };
  const access = [{ kind: "repository", name: repository, actions: ["pull", "push"] }];
  const vendor = await startRegistry(
    join(folder, "vendor"),
    authorizeBearer(async (token) => {
      if (token !== vendorToken) throw new Fault("unauthorized", "Expected the trial's token.");
      return { access };
    }),
  );
  const passwordHash = await hashPassword(registryPassword, randomBytes);
  const own = await startRegistry(
    join(folder, "registry"),
    authorizeBasic({ username: "install", passwordHash }, randomBytes),
  );
  const sources = await startSources();
  const storeDirectory = join(folder, "store");
  await (await createFolderStore(storeDirectory)).close();
  const supervisorDirectory = join(folder, "supervisor");
  await mkdir(supervisorDirectory);
  const app = { id: createId("app", new Date(), randomBytes), name: "guestbook" };
  const install = { id: createId("ins", new Date(), randomBytes), name: "acme" };

  const place: Place = {
    storeDirectory,
    registry: { url: own.url, username: "install", password: registryPassword },
    supervisorDirectory,
    installsDirectory: null,
    programs: null,
  };
  const credentials: JobCredentials = {
    vendorRegistry: { url: vendor.url, token: vendorToken },
    sourceUrl: sources.url,
    enrolment: null,
  };

  function manifestOf(given: Partial<Manifest>): Manifest {
    return {
      version: 1,
      jobId: createId("job", new Date(), randomBytes),
      operation: "plan",
      createdAt: new Date().toISOString(),
      app,
      install,
      plugin: given.component?.type ?? "noop",
      component: { name: "c", type: "noop", config: {} },
      sandbox: null,
      source: null,
      artifact: { repository, digest: null, sizeBytes: 0 },
      inputs: {},
      dependencies: {},
      approval: null,
      fingerprint: null,
      timeoutSeconds: 60,
      ...given,
    };
  }

  /** Writes the job's folder and starts the executor in it. */
  async function start(
    given: Partial<Manifest>,
    options: {
      n?: number;
      place?: Place;
      credentials?: JobCredentials;
      signer?: typeof signingKey;
    } = {},
  ): Promise<Started> {
    const manifest = manifestOf(given);
    const epoch = { generation: 1, n: options.n ?? 1 };
    const jobFolder = join(folder, "jobs", jobFolderName(manifest.jobId, epoch));
    await mkdir(jobFolder, { recursive: true });
    const signer = options.signer ?? signingKey;
    const grant = {
      version: 1,
      jobId: manifest.jobId,
      manifestDigest: digestOfJson(manifest),
      agentId: createId("agt", new Date(), randomBytes),
      epoch,
      serverTime: new Date().toISOString(),
      leaseSeconds: 30,
    };
    const files = {
      [jobFiles.manifest]: await signDocument("landfall-manifest", manifest, signer),
      [jobFiles.grant]: await signDocument("landfall-grant", grant, signer),
      [jobFiles.keys]: JSON.stringify({ [keyId]: encodePublicKey(key.publicKey) }),
      [jobFiles.place]: JSON.stringify(options.place ?? place),
      [jobFiles.credentials]: JSON.stringify(options.credentials ?? credentials),
    };
    for (const [name, text] of Object.entries(files)) await writeFile(join(jobFolder, name), text);
    return startIn(jobFolder);
  }

  /** Starts the executor in a folder that is there already. */
  function startIn(jobFolder: string): Started {
    const output = openSync(join(jobFolder, jobFiles.stderr), "a");
    const child = spawn(process.execPath, [program, jobFolder], {
      cwd: jobFolder,
      stdio: ["ignore", output, output],
      env: { PATH: "/usr/local/bin:/usr/bin:/bin", LANG: "C.UTF-8" },
    });
    const exit = new Promise<number | null>((resolve) => child.once("exit", resolve));
    return { child, folder: jobFolder, ended: async () => readRun(jobFolder, await exit) };
  }

  const run = async (...args: Parameters<typeof start>) => (await start(...args)).ended();

  return {
    folder,
    place,
    install,
    credentials,
    vendor,
    own,
    start,
    startIn,
    run,
    /** Uploads a source, for `manifest.source`. */
    async upload(files: Readonly<Record<string, string>>) {
      const directory = await mkdtemp(join(folder, "source-"));
      for (const [name, text] of Object.entries(files)) {
        await mkdir(dirname(join(directory, name)), { recursive: true });
        await writeFile(join(directory, name), text);
      }
      const file = `${directory}.tar.gz`;
      const packed = await packDirectoryToFile(directory, file);
      sources.serve(await readFile(file));
      return { digest: packed.digest, sizeBytes: packed.sizeBytes };
    },
    async withStore<T>(use: (store: Store) => Promise<T>): Promise<T> {
      const store = await openFolderStore(storeDirectory);
      try {
        return await use(store);
      } finally {
        await store.close();
      }
    },
    /** build → sync → plan → apply of one component, each as its own job. */
    async deploy(
      component: { name: string; type: string; config: JsonObject },
      options: {
        files?: Readonly<Record<string, string>>;
        dependencies?: Manifest["dependencies"];
      } = {},
    ) {
      const source = options.files ? await this.upload(options.files) : null;
      const given = { component, plugin: component.type, dependencies: options.dependencies ?? {} };
      const built = await run({ ...given, operation: "build", install: null, source });
      assert.equal(built.outcome.status, "succeeded", built.told);
      const artifact = built.outcome.artifact ?? assert.fail("no artifact");
      const synced = await run({ ...given, operation: "sync", artifact });
      assert.equal(synced.outcome.status, "succeeded", synced.told);
      const planned = await run({ ...given, operation: "plan", artifact });
      assert.equal(planned.outcome.status, "succeeded", planned.told);
      const approval = planned.outcome.plan ?? assert.fail("no plan");
      const { planDigest, approvalDigest } = approval;
      const approved = { ...given, artifact, approval: { planDigest, approvalDigest } };
      const applied = await run({ ...approved, operation: "apply" });
      return { artifact, built, synced, planned, applied, approved };
    },
    async close() {
      await Promise.all([vendor.close(), own.close(), sources.close()]);
    },
  };
}

async function readRun(folder: string, exitCode: number | null): Promise<JobRun> {
  const text = await readFile(join(folder, jobFiles.events), "utf8").catch(() => "");
  const stderr = await readFile(join(folder, jobFiles.stderr), "utf8").catch(() => "");
  const lines = text.split("\n").filter((line) => line !== "");
  const events = lines.map((line) => JobEvent.parse(JSON.parse(line)));
  for (const [index, event] of events.entries()) assert.equal(event.seq, index + 1);
  const last = events.at(-1);
  const outcomes = events.filter((event) => event.type === "outcome");
  assert(outcomes.length <= 1, "more than one outcome");
  const outcome: Outcome =
    last?.type === "outcome"
      ? (last.outcome as Outcome)
      : { status: "failed", message: "NO OUTCOME" };
  return { folder, outcome, events, exitCode, told: `${text}\n${stderr}` };
}

async function startRegistry(
  directory: string,
  authorize: Parameters<typeof createRegistry>[0]["authorize"],
) {
  const now = () => new Date();
  const registry = await createRegistry({
    directory,
    authorize,
    log: () => {},
    now,
    random: randomBytes,
  });
  const { url } = await listen(registry.server, { host: "127.0.0.1", port: 0 });
  return { url, directory, close: () => registry.close(0) };
}

async function startSources() {
  let served: Uint8Array = new Uint8Array();
  const server = createServer((request, response) => {
    const isKnown = request.headers.authorization === `Bearer ${vendorToken}`;
    response.writeHead(isKnown ? 200 : 401);
    response.end(isKnown ? served : undefined);
  });
  const { url } = await listen(server, { host: "127.0.0.1", port: 0 });
  return {
    url: `${url}/source`,
    serve(bytes: Uint8Array) {
      served = bytes;
      return digestOf(bytes);
    },
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
