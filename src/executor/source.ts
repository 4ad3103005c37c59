/** The uploaded source of a build: downloaded within its size, checked by its digest, then unpacked. */
import { createHash } from "node:crypto";
import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { describeError } from "../model/fault.ts";
import type { Digest } from "../model/json.ts";
import { unpack } from "../oci/unpack.ts";
import { OperationFailure } from "../plugin/plugin.ts";
import { type ExecutorContext, requirePart } from "./context.ts";

/** About half a minute in all: a server that is started again is back by then. */
const attemptsMax = 12;
const pauseMsFirst = 100;
const pauseMsMax = 5000;
const idleMs = 60_000;

/** The folder of the unpacked source; an empty one for a component that has none. */
export async function fetchSource(context: ExecutorContext): Promise<string> {
  const directory = join(context.workDirectory, "source");
  const { source } = context.manifest;
  if (!source) {
    await mkdir(directory, { recursive: true });
    return directory;
  }
  const file = join(context.workDirectory, "source.tar.gz");
  await downloadWithRetries(context, file, source);
  await unpack(file, directory);
  return directory;
}

async function downloadWithRetries(
  context: ExecutorContext,
  file: string,
  source: { digest: Digest; sizeBytes: number },
): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await download(context, file, source);
    } catch (error) {
      if (error instanceof OperationFailure || context.signal.aborted) throw error;
      const reason = describeError(error instanceof Error && error.cause ? error.cause : error);
      if (attempt >= attemptsMax) {
        throw new OperationFailure(
          `Expected to download the source from the server, but ${attemptsMax} attempts failed: ${reason}.`,
        );
      }
      context.log.log("system", `downloading the source again: ${reason}`);
      const pauseMs = Math.min(pauseMsFirst * 2 ** (attempt - 1), pauseMsMax);
      await delay(pauseMs, undefined, { signal: context.signal });
    }
  }
}

async function download(
  context: ExecutorContext,
  file: string,
  { digest, sizeBytes }: { digest: Digest; sizeBytes: number },
): Promise<void> {
  const { sourceUrl, vendorRegistry } = await context.readCredentials();
  const { token } = requirePart(vendorRegistry, "credentials.vendorRegistry");
  const stalled = new AbortController();
  const watch = setTimeout(() => stalled.abort(new Error(`no bytes for ${idleMs} ms`)), idleMs);
  const hash = createHash("sha256");
  const handle = await open(file, "w", 0o600);
  try {
    const response = await fetch(requirePart(sourceUrl, "credentials.sourceUrl"), {
      headers: { authorization: `Bearer ${token}` },
      redirect: "error",
      signal: AbortSignal.any([context.signal, stalled.signal]),
    });
    if (response.status >= 500) throw new Error(`the server answered ${response.status}`);
    if (!response.ok || !response.body) {
      throw new OperationFailure(
        `Expected the source from the server, got status ${response.status}.`,
      );
    }
    let received = 0;
    for await (const piece of response.body) {
      watch.refresh();
      received += piece.byteLength;
      if (received > sizeBytes) break;
      hash.update(piece);
      await handle.writeFile(piece);
    }
    if (received !== sizeBytes || `sha256:${hash.digest("hex")}` !== digest) {
      throw new OperationFailure(
        `Expected a source of ${sizeBytes} bytes with the digest ${digest}, got other bytes. Upload it again.`,
        "bad_artifact",
      );
    }
  } finally {
    clearTimeout(watch);
    await handle.close();
  }
}
