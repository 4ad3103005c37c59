/**
 * Writes status/: what does run, one file a name.
 *
 * Invariant: a status that cannot be written (a full disk) ends nothing; it stays due and is written as soon
 * as it can be. Written at once and in order: what a new supervisor may adopt is known as early as possible.
 */
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describeError } from "../model/fault.ts";
import { ProcessStatus } from "../protocol/supervisor-folder.ts";
import { isProcessName } from "./desired-folder.ts";
import { readJsonFile, replaceFile } from "./folder-file.ts";
import type { Log } from "./log.ts";

export interface StatusFolder {
  /** Every status that an earlier supervisor left, by name. */
  readAll(): Map<string, ProcessStatus>;
  /** Writes the status when it says anything new; `since` is kept while state, process and revision stay. */
  write(name: string, status: Omit<ProcessStatus, "since">): void;
  remove(name: string): void;
  /** Writes what could not be written before. */
  retry(): void;
}

/** The folder status/. */
export function createStatusFolder(directory: string, log: Log, date: () => Date): StatusFolder {
  const latest = new Map<string, ProcessStatus>();
  const due = new Set<string>();
  const fileOf = (name: string) => join(directory, `${name}.json`);

  function readAll(): Map<string, ProcessStatus> {
    for (const file of readdirSync(directory)) {
      const name = file.endsWith(".json") ? file.slice(0, -".json".length) : "";
      if (!isProcessName(name)) continue;
      const parsed = ProcessStatus.safeParse(readJsonFile(join(directory, file)));
      if (parsed.success) latest.set(name, parsed.data);
    }
    return new Map(latest);
  }

  function write(name: string, status: Omit<ProcessStatus, "since">): void {
    const before = latest.get(name);
    const since = before !== undefined && isSameState(before, status) ? before.since : null;
    const next: ProcessStatus = { ...status, since: since ?? date().toISOString() };
    if (before !== undefined && JSON.stringify(before) === JSON.stringify(next)) return;
    latest.set(name, next);
    if (since === null) log("info", "process state", { name, ...status });
    flush(name);
  }

  function flush(name: string): void {
    try {
      const status = latest.get(name);
      if (status === undefined) rmSync(fileOf(name), { force: true });
      else replaceFile(fileOf(name), status);
      due.delete(name);
    } catch (error) {
      if (!due.has(name)) log("warn", "status not written", { name, reason: describeError(error) });
      due.add(name);
    }
  }

  function remove(name: string): void {
    latest.delete(name);
    flush(name);
  }

  return { readAll, write, remove, retry: () => [...due].forEach(flush) };
}

function isSameState(one: ProcessStatus, other: Omit<ProcessStatus, "since">): boolean {
  return (
    one.state === other.state &&
    one.revision === other.revision &&
    one.process?.pid === other.process?.pid &&
    one.process?.startTime === other.process?.startTime
  );
}
