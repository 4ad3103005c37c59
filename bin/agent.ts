/**
 * The agent program: `agent.ts --config FILE`.
 *
 * SIGTERM (and, with `exitWithParent`, the end of stdin): ends and leaves its executors running, for
 * the next agent to find. SIGINT: launches nothing more, gives executors ten seconds, ends them.
 */
import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { mkdir, realpath } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import "./plain-schemas.ts";
import { startAgent } from "../src/agent/agent.ts";
import { type AgentConfiguration, readConfiguration } from "../src/agent/configuration.ts";
import { enrol, ownFiles } from "../src/agent/enrol.ts";
import { chooseIsolation } from "../src/agent/isolation.ts";
import { openJournal } from "../src/agent/journal.ts";
import { createLogger } from "../src/agent/log.ts";
import { createProcessLauncher } from "../src/agent/process-launcher.ts";
import { chooseProxy } from "../src/agent/proxy-choice.ts";
import { createRoute, type Route, readAuthorities } from "../src/agent/route.ts";
import { removeUnfinished } from "../src/files/replace-file.ts";
import { describeError, isFault } from "../src/model/fault.ts";

/** 3: the code is missing, wrong, used or expired; 4: another agent has this identity now. */
const exitCodes = { stopped: 0, failed: 1, usage: 2, enrolmentRefused: 3, superseded: 4 } as const;

const logger = createLogger(
  (line) => process.stdout.write(line),
  () => new Date(),
);
// Whoever read our log may be gone before us; executors must not suffer for it.
process.stdout.on("error", () => {});

const clock = () => Number(process.hrtime.bigint() / 1_000_000n);

const stopping = new AbortController();
let stop = (): void => stopping.abort();
let drain = (): void => stopping.abort();
process.on("SIGTERM", () => stop());
process.on("SIGINT", () => drain());

try {
  process.exit(await main());
} catch (error) {
  if (stopping.signal.aborted) process.exit(exitCodes.stopped);
  logger.error("the agent cannot go on", { reason: describeError(error) });
  if (!isFault(error)) process.stderr.write(`${error instanceof Error ? error.stack : error}\n`);
  process.exit(isFault(error, "unauthorized") ? exitCodes.enrolmentRefused : exitCodes.failed);
}

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { config: { type: "string" } } });
  if (values.config === undefined) {
    process.stderr.write("Expected `agent.ts --config FILE`, got no file.\n");
    return exitCodes.usage;
  }
  const configuration = await readConfiguration(values.config);
  if (configuration.exitWithParent) {
    process.stdin
      .on("close", () => stop())
      .on("error", () => stop())
      .resume();
  }
  await mkdir(configuration.directory, { recursive: true, mode: 0o700 });
  const directory = await realpath(configuration.directory);
  await removeUnfinished(ownFiles(directory));
  const journal = openJournal(join(directory, "journal.db"), {
    spoolBytesMax: configuration.spoolBytesMax,
    logger,
    clock,
    now: () => new Date(),
  });
  const random = () => randomInt(2 ** 32) / 2 ** 32;
  const { serverUrl, enrolmentFile } = configuration;
  const route = await planRoute(configuration);
  const identity = await enrol({
    serverUrl,
    route,
    directory,
    enrolmentFile,
    logger,
    random,
    sleep: (ms) => sleep(ms, undefined, { signal: stopping.signal }),
    signal: stopping.signal,
  });

  const system = { PATH: process.env.PATH ?? "/usr/local/bin:/usr/bin:/bin", LANG: "C.UTF-8" };
  const { isolation, fallbackReason } = await chooseIsolation(configuration.sandbox, system);
  if (fallbackReason) logger.warn("jobs run with less isolation", { isolation, fallbackReason });
  const { readOnlyPaths, writablePaths } = configuration;
  const agent = await startAgent({
    ...configuration,
    directory,
    enrolmentFile,
    route,
    identity,
    journal,
    launcher: createProcessLauncher({
      isolation,
      visible: { readOnlyPaths, writablePaths, agentDirectory: directory },
      lockDirectory: join(tmpdir(), `landfall-locks-${process.getuid?.() ?? "user"}`),
    }),
    environment: { ...system, ...configuration.environment },
    logger,
    random,
    clock,
    ...readVersion(),
    now: () => new Date(),
  });
  stop = agent.leave;
  drain = agent.drain;
  if (stopping.signal.aborted) agent.leave();
  const reason = await agent.ended;
  journal.close();
  return exitCodes[reason];
}

/** Of this program, for people; nothing where it was put somewhere without its package. */
function readVersion(): { version?: string } {
  try {
    const file = new URL("../package.json", import.meta.url);
    const { version }: { version: string } = JSON.parse(readFileSync(file, "utf8"));
    return { version };
  } catch {
    return {};
  }
}

/** The configuration's proxy and authorities, or the environment's proxy; wrong ones end the agent here. */
async function planRoute({ serverUrl, caFile, ...configured }: AgentConfiguration): Promise<Route> {
  const proxyFor = (target: URL) => chooseProxy(target, { configured, environment: process.env });
  const proxy = proxyFor(new URL(serverUrl));
  if (proxy) logger.info("the server is reached through a proxy", { proxy: proxy.name });
  return createRoute({ proxyFor, extraAuthorities: await readAuthorities(caFile) });
}
