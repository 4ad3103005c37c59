/**
 * Keeps the processes of one folder running: `supervisor.ts --directory DIR [--path PATH]`.
 *
 * It detaches from nobody: whoever starts it does that. Ends with 0 after SIGTERM or SIGINT with everything
 * stopped, 1 when something would not die or it failed itself, 2 for wrong options, 3 when another process
 * supervises the folder.
 */
import { writeSync } from "node:fs";
import { parseArgs } from "node:util";
import "./plain-schemas.ts";
import { describeError, isFault } from "../src/model/fault.ts";
import { createLog } from "../src/supervisor/log.ts";
import { startSupervisor } from "../src/supervisor/supervise.ts";
import { alreadySupervisedExitCode } from "../src/supervisor/supervisor-record.ts";

const failedExitCode = 1;
const usageExitCode = 2;
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Straight to the file: a stream would be closed for good by the first full disk.
const log = createLog(
  (line) => writeSync(1, line),
  () => new Date(),
);

const { directory, path } = readOptions();
try {
  const supervisor = startSupervisor({
    directory,
    path,
    log,
    now: () => performance.now(),
    date: () => new Date(),
    random: Math.random,
  });
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => supervisor.stop());
  process.exitCode = (await supervisor.ended) ? 0 : failedExitCode;
  process.exit();
} catch (error) {
  log("error", "supervisor not started", { reason: describeError(error) });
  process.stderr.write(`${describeError(error)}\n`);
  process.exit(isFault(error, "conflict") ? alreadySupervisedExitCode : failedExitCode);
}

function readOptions(): { directory: string; path: string } {
  try {
    const { values } = parseArgs({
      options: { directory: { type: "string" }, path: { type: "string" } },
    });
    if (values.directory === undefined) throw new Error("Expected `--directory DIR`, got none.");
    return {
      directory: values.directory,
      path: values.path ?? process.env.PATH ?? defaultPath,
    };
  } catch (error) {
    process.stderr.write(`${describeError(error)}\n`);
    process.exit(usageExitCode);
  }
}
