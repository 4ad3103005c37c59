/** The infrastructure management server: `server --config FILE`. */
import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { pino } from "pino";
import { describeError, isFault } from "../src/model/fault.ts";
import { ServerConfig, startServer } from "../src/server/start.ts";

const stopMs = 10_000;
const log = pino({ name: "server" });

try {
  const { values } = parseArgs({ options: { config: { type: "string" } } });
  if (!values.config) throw new Error("Expected `--config FILE`.");
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
  if (config.exitWithParent) process.stdin.on("end", () => stop("parent gone")).resume();
} catch (error) {
  if (isFault(error)) log.fatal(error.message);
  else log.fatal({ err: error }, "The server cannot start");
  process.stderr.write(`${describeError(error)}\n`);
  process.exit(isFault(error) ? 2 : 1);
}
