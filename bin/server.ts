/**
 * The infrastructure management server: `server --config FILE`. With `--wait` the file may come later:
 * whoever starts it is still finding out where the database is, and loading takes time meanwhile.
 */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { pino } from "pino";
import { describeError, isFault } from "../src/model/fault.ts";
import { ServerConfig, startServer } from "../src/server/start.ts";

const stopMs = 10_000;
const waitPollMs = 4;
const log = pino({ name: "server" });

try {
  const { values } = parseArgs({
    options: { config: { type: "string" }, wait: { type: "boolean" } },
  });
  if (!values.config) throw new Error("Expected `--config FILE`.");
  if (values.wait) await untilExists(values.config);
  const config = ServerConfig.parse(JSON.parse(await readFile(values.config, "utf8")));
  const migrationsDirectory =
    process.env.LANDFALL_MIGRATIONS ?? join(import.meta.dirname, "../src/server/migrations");
  const server = await startServer(config, {
    migrationsDirectory,
    log,
    now: () => new Date(),
    random: randomBytes,
  });
  log.info({ url: server.url }, "Listening");
  let isStopping = false;
  const stop = (reason: string) => {
    if (isStopping) return;
    isStopping = true;
    log.info({ reason }, "Stopping");
    setTimeout(() => process.exit(1), stopMs).unref();
    server.stop().then(
      () => process.exit(0),
      (error: unknown) => {
        log.error({ err: error }, "Stopping failed");
        process.exit(1);
      },
    );
  };
  process.on("SIGTERM", () => stop("SIGTERM"));
  process.on("SIGINT", () => stop("SIGINT"));
  if (config.exitWithParent) {
    if (process.stdin.readableEnded) stop("parent gone");
    process.stdin.on("end", () => stop("parent gone")).resume();
  }
} catch (error) {
  if (isFault(error)) log.fatal(error.message);
  else log.fatal({ err: error }, "The server cannot start");
  process.stderr.write(`${describeError(error)}\n`);
  process.exit(isFault(error) ? 2 : 1);
}

async function untilExists(path: string): Promise<void> {
  const parentGone = new AbortController();
  process.stdin.on("end", () => parentGone.abort()).resume();
  while (!existsSync(path)) {
    if (parentGone.signal.aborted) process.exit(0);
    await sleep(waitPollMs);
  }
}
