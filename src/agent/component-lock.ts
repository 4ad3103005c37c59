/**
 * One agent at a time proves a component clear and starts an executor of it, whichever agents are alive
 * on this machine: an agent that was replaced and does not know it yet may be at it too.
 *
 * The lock is SQLite's on a small file: it goes with the process that holds it, however that dies.
 */
import { createHash } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { Fault } from "../model/fault.ts";

const waitMs = 30_000;
const pollMs = 20;
/** SQLite's own number for "another process has it locked". */
const sqliteBusy = 5;

/** Runs `act` while no other agent of this machine (with the same folder of locks) does so for the component. */
export async function aloneWith<T>(
  directory: string,
  component: string,
  act: () => Promise<T>,
): Promise<T> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  // A bounded number of files, since none can be removed safely; two that share one only wait a moment.
  const name = createHash("sha256").update(component).digest("hex").slice(0, 2);
  const lock = new DatabaseSync(join(directory, `${name}.lock`), { timeout: 0 });
  try {
    await take(lock, component);
    return await act();
  } finally {
    lock.close();
  }
}

async function take(lock: DatabaseSync, component: string): Promise<void> {
  const deadline = performance.now() + waitMs;
  for (;;) {
    try {
      return lock.exec("begin exclusive");
    } catch (error) {
      if (!isBusy(error)) throw error;
    }
    if (performance.now() >= deadline) {
      throw new Fault(
        "conflict",
        `Expected to be the only agent that starts an executor of ${component} on this machine, but another has been at it for ${waitMs / 1000} s.`,
      );
    }
    await sleep(pollMs);
  }
}

function isBusy(error: unknown): boolean {
  return error instanceof Error && "errcode" in error && error.errcode === sqliteBusy;
}
