/**
 * Waiting for what the supervisor says, in its `status/` folder.
 *
 * Files are watched where the system can, and looked at every `pollMs` besides: a watch may be missing
 * (other mounts) or lose an event, and the poll alone is fast enough.
 */
import { watch } from "node:fs";
import { open, readFile } from "node:fs/promises";
import { join } from "node:path";
import { errorCode } from "../../model/file-fault.ts";
import { OperationFailure } from "../../plugin/plugin.ts";
import { ProcessStatus, supervisorFolders } from "../../protocol/supervisor-folder.ts";

const pollMs = 25;
const logTailBytes = 16_384;
const logTailLines = 20;

/** The status as the supervisor last wrote it, or null. */
export async function readStatus(directory: string, name: string): Promise<ProcessStatus | null> {
  try {
    const text = await readFile(join(directory, supervisorFolders.status, `${name}.json`), "utf8");
    return ProcessStatus.parse(JSON.parse(text));
  } catch (error) {
    if (errorCode(error) === "ENOENT") return null;
    throw error;
  }
}

/** The first status that `isDone` accepts; a failure when the time is over or the job is cancelled. */
export async function waitForStatus(
  directory: string,
  name: string,
  options: {
    isDone: (status: ProcessStatus | null) => boolean;
    timeoutMs: number;
    signal: AbortSignal;
    describe: (status: ProcessStatus | null) => Promise<string>;
  },
): Promise<ProcessStatus | null> {
  let wake = () => {};
  const watcher = startWatch(join(directory, supervisorFolders.status), () => wake());
  const deadline = performance.now() + options.timeoutMs;
  try {
    for (;;) {
      const status = await readStatus(directory, name);
      if (options.isDone(status)) return status;
      if (options.signal.aborted)
        throw new OperationFailure("The wait was cancelled.", "cancelled");
      if (performance.now() > deadline) {
        throw new OperationFailure(await options.describe(status), "timed_out");
      }
      await new Promise<void>((resolve) => {
        wake = resolve;
        setTimeout(resolve, pollMs);
      });
    }
  } finally {
    watcher?.close();
  }
}

/** The last lines that a process printed, for the message of a failure. */
export async function readLogTail(directory: string, name: string): Promise<string> {
  const path = join(directory, supervisorFolders.logs, `${name}.log`);
  try {
    const file = await open(path, "r");
    try {
      const { size } = await file.stat();
      const start = Math.max(0, size - logTailBytes);
      const { buffer, bytesRead } = await file.read(
        Buffer.alloc(logTailBytes),
        0,
        logTailBytes,
        start,
      );
      const lines = buffer.subarray(0, bytesRead).toString("utf8").trimEnd().split("\n");
      return lines.slice(-logTailLines).join("\n");
    } finally {
      await file.close();
    }
  } catch (error) {
    if (errorCode(error) === "ENOENT") return "";
    throw error;
  }
}

function startWatch(directory: string, onChange: () => void) {
  try {
    return watch(directory, onChange).on("error", () => {});
  } catch {
    return null; // The poll does it alone.
  }
}
