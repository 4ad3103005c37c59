/**
 * From an app directory to a configuration on the server: read, pack, upload what the server lacks, sync.
 *
 * Invariant: the same directory gives the same digests, wherever it lies and whoever packs it; so an
 * unchanged app uploads nothing and changes nothing.
 */
import { createHash } from "node:crypto";
import { stat } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { formatProblems } from "../config/format-problems.ts";
import { readApp } from "../config/read-app.ts";
import type { AppConfig } from "../model/app-config.ts";
import { Fault, isFault, type Problem } from "../model/fault.ts";
import type { Digest } from "../model/json.ts";
import { packDirectory } from "../oci/pack.ts";
import { type SyncAnswer, SyncRequest } from "../protocol/api.ts";
import type { ApiClient } from "./api-client.ts";
import { formatBytes } from "./duration.ts";
import { lineReader } from "./problem-report.ts";

export interface PackedSource {
  readonly digest: Digest;
  readonly content: Uint8Array;
}

export interface PackedApp {
  readonly config: AppConfig;
  /** By component. */
  readonly sources: ReadonlyMap<string, PackedSource>;
  /** Warnings, as text for people. */
  readonly warnings: string;
}

const uploadsAtOnce = 4;
const sourceBytesMax = 256 * 1024 * 1024;

/** An app without errors, its sources not packed yet. */
export interface ReadApp {
  readonly root: string;
  readonly config: AppConfig;
  /** Warnings, as text for people. */
  readonly warnings: string;
}

/** Reads and packs an app. */
export async function packApp(root: string, cwd: string): Promise<PackedApp> {
  return packSources(await readAppDirectory(root, cwd));
}

/** Reads an app; a `Fault` with every problem, each with file and line, when it has errors. */
export async function readAppDirectory(root: string, cwd: string): Promise<ReadApp> {
  const { config, problems: found } = await readApp(root);
  const problems = found.map((problem) => seenFrom(cwd, root, problem));
  const errors = problems.filter(({ severity }) => severity === "error");
  if (config === null || errors.length > 0) {
    const count = errors.length === 1 ? "one problem" : `${errors.length} problems`;
    throw new Fault(
      "invalid",
      `Expected an app without errors in \`${root}\`, got ${count}. Correct them and try again; nothing was changed.`,
      { problems },
    );
  }
  return { root, config, warnings: formatProblems(problems, lineReader(cwd)) };
}

/** Packs the sources of an app's components. */
export async function packSources({ root, config, warnings }: ReadApp): Promise<PackedApp> {
  const withSource = config.components.flatMap(({ name, source }) =>
    source ? [{ name, path: source.path }] : [],
  );
  const sources = await Promise.all(
    withSource.map(
      async ({ name, path }) => [name, await packSource(name, join(root, path))] as const,
    ),
  );
  return { config, sources: new Map(sources), warnings };
}

async function packSource(component: string, directory: string): Promise<PackedSource> {
  const pieces: Uint8Array[] = [];
  const hash = createHash("sha256");
  let sizeBytes = 0;
  for await (const piece of packDirectory(directory)) {
    sizeBytes += piece.byteLength;
    if (sizeBytes > sourceBytesMax) {
      throw new Fault(
        "too_large",
        `Expected a source of at most ${formatBytes(sourceBytesMax)} packed, got more for component \`${component}\`. Leave large files out of \`${directory}\`.`,
      );
    }
    hash.update(piece);
    pieces.push(piece);
  }
  return { digest: `sha256:${hash.digest("hex")}`, content: Buffer.concat(pieces) };
}

/** The problem with its file's path as one would type it where the command was called. */
function seenFrom(cwd: string, root: string, problem: Problem): Problem {
  if (problem.position === null) return problem;
  const file = relative(cwd, resolve(root, problem.position.file));
  return { ...problem, position: { ...problem.position, file } };
}

/**
 * Hands in the configuration, and uploads what the server lacks. It names the first source that it
 * misses: that one is sent, and if it misses another, so are all the rest. So an unchanged app costs one
 * request, and a change in one component one upload.
 */
export async function syncApp(
  client: ApiClient,
  app: PackedApp,
): Promise<{ answer: SyncAnswer; uploaded: number }> {
  const lacking = new Map([...app.sources.values()].map((source) => [source.digest, source]));
  const sources = [...app.sources].map(([name, { digest, content }]) => [
    name,
    { digest, sizeBytes: content.byteLength },
  ]);
  const request = SyncRequest.parse({ config: app.config, sources: Object.fromEntries(sources) });
  for (let uploaded = 0; ; ) {
    try {
      return { answer: await client.sync(request), uploaded };
    } catch (error) {
      const missing = isFault(error, "invalid")
        ? [...lacking.values()].filter(({ digest }) => error.message.includes(digest))
        : [];
      if (missing.length === 0) throw error;
      const next = uploaded === 0 ? missing : [...lacking.values()];
      await uploadAll(client, next);
      uploaded += next.length;
      for (const { digest } of next) lacking.delete(digest);
    }
  }
}

async function uploadAll(client: ApiClient, sources: readonly PackedSource[]): Promise<void> {
  const queue = [...sources];
  const upload = async () => {
    for (let source = queue.pop(); source; source = queue.pop()) {
      await client.uploadSource(source.digest, source.content);
    }
  };
  await Promise.all(Array.from({ length: uploadsAtOnce }, upload));
}

/** The directory that a person named, if it is one. */
export async function findAppDirectory(directory: string, cwd: string): Promise<string> {
  const path = resolve(cwd, directory);
  const found = await stat(path).catch(() => null);
  if (found?.isDirectory()) return path;
  throw new Fault(
    "invalid",
    `Expected an app directory at \`${path}\`, got ${found ? "a file" : "nothing"}. Name one that holds a metadata.toml.`,
  );
}
