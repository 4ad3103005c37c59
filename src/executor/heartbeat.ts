/**
 * The executor's sign of life: a file that it touches from its event loop, whatever its plugin does. An
 * agent that sees no change for the manifest's limit ends the executor.
 *
 * Invariant: it needs no room on the disk after the first time, so a full disk does not look like death.
 */
import { utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Manifest } from "../protocol/documents.ts";
import { jobFiles } from "../protocol/job-folder.ts";

const usualPeriodMs = 5000;
/** Within the limit of silence the file is touched at least so often. */
const beatsPerLimit = 4;

/** Begins to touch the file; gives back what ends it. */
export function startHeartbeat(
  folder: string,
  limits: Manifest["limits"],
  now: () => Date,
): () => void {
  const path = join(folder, jobFiles.heartbeat);
  const touch = () => {
    try {
      const at = now();
      utimesSync(path, at, at);
    } catch {
      make(path);
    }
  };
  make(path);
  const limitMs = (limits?.silenceSeconds ?? Number.POSITIVE_INFINITY) * 1000;
  const timer = setInterval(touch, Math.min(usualPeriodMs, limitMs / beatsPerLimit));
  timer.unref();
  return () => clearInterval(timer);
}

function make(path: string): void {
  try {
    writeFileSync(path, "", { mode: 0o600 });
  } catch {
    // No room even for an empty file; the events are signs of life too.
  }
}
