/**
 * The registry program: `registry --config FILE`.
 *
 * Serves one content store over HTTP until it is told to stop (SIGTERM, SIGINT, or the end of stdin
 * when it shall not outlive its parent). Pushes, removals and refusals are JSON lines on stdout.
 *
 * Exit codes: 0 stopped, 1 failed, 2 wrong command line or configuration, 3 port in use.
 */
import { type KeyObject, randomBytes } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { parseArgs } from "node:util";
import { describeError, Fault, isFault } from "../src/model/fault.ts";
import { type Authorize, authorizeBasic, authorizeBearer } from "../src/oci/authorize.ts";
import { replaceFile } from "../src/oci/durable-file.ts";
import { createRegistry } from "../src/oci/registry.ts";
import { parseRegistryConfig, type RegistryAuth } from "../src/oci/registry-config.ts";
import { listen } from "../src/oci/registry-listen.ts";

const closeGraceMs = 2_000;
const keysBytesMax = 1024 * 1024;

try {
  await run();
} catch (error) {
  process.stderr.write(`registry: ${describeError(error)}\n`);
  process.exit(isFault(error, "invalid") ? 2 : isFault(error, "conflict") ? 3 : 1);
}

async function run(): Promise<void> {
  const config = parseRegistryConfig(await readConfig());
  const registry = await createRegistry({
    directory: config.directory,
    authorize: await createAuthorize(config.auth),
    log: (record) => {
      process.stdout.write(`${JSON.stringify({ at: new Date().toISOString(), ...record })}\n`);
    },
    now: () => new Date(),
    random: randomBytes,
  });
  const address = await listen(registry.server, config.listen);
  let stopping = false;
  const stop = () => {
    if (stopping) return;
    stopping = true;
    registry.close(closeGraceMs).then(
      () => process.exit(0),
      () => process.exit(1),
    );
  };
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
  // A reader of our log that went away is no reason to stop serving.
  process.stdout.on("error", () => undefined);
  if (config.exitWithParent) process.stdin.on("end", stop).on("error", stop).resume();
  if (config.portFile !== null) {
    const temporary = `${config.portFile}.${process.pid}`;
    await replaceFile(temporary, config.portFile, `${JSON.stringify(address)}\n`);
  }
  process.stdout.write(`${JSON.stringify({ event: "listening", ...address })}\n`);
}

async function readConfig(): Promise<string> {
  const { values } = parseArgs({ options: { config: { type: "string" } }, strict: false });
  const path = values.config;
  if (typeof path !== "string") {
    throw new Fault("invalid", "Expected `registry --config FILE`.");
  }
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    throw new Fault(
      "invalid",
      `Expected to read the configuration ${path}: ${describeError(cause)}.`,
      {
        cause,
      },
    );
  }
}

async function createAuthorize(auth: RegistryAuth): Promise<Authorize> {
  if (auth.type === "basic") return authorizeBasic(auth, randomBytes);
  // Loaded only here: an install's own registry needs nothing of the server's protocol.
  const { verifyJobToken } = await import("../src/protocol/job-token.ts");
  const { decodePublicKey } = await import("../src/protocol/signed-document.ts");
  let version = "";
  let keys = new Map<string, KeyObject>();

  async function readKeys(path: string): Promise<void> {
    const found = await stat(path, { bigint: true });
    const current = `${found.ino}.${found.mtimeNs}.${found.size}`;
    if (current === version) return;
    if (found.size > keysBytesMax) throw new Fault("too_large", "Expected a smaller file of keys.");
    const entries = Object.entries(JSON.parse(await readFile(path, "utf8")));
    keys = new Map(entries.map(([id, key]) => [id, decodePublicKey(String(key))]));
    version = current;
  }

  await readKeys(auth.keysFile);
  return authorizeBearer(async (token) => {
    // A file that is gone or half changed leaves the keys that were good before.
    await readKeys(auth.keysFile).catch(() => undefined);
    return verifyJobToken(token, (keyId) => keys.get(keyId) ?? null, new Date());
  });
}
