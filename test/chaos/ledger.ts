/** The ledger that the `noop` plugin writes: what really ran, whatever anybody says of it. */
import { readFile } from "node:fs/promises";

export interface LedgerEntry {
  readonly phase: "start" | "end" | "overlap";
  readonly operation: string;
  readonly component: string;
  readonly install: string | null;
  readonly job: string;
  readonly epoch: string;
  readonly pid: number;
  readonly monotonicMs: number;
}

/** One run of one plugin. */
export interface Execution {
  readonly job: string;
  readonly epoch: string;
  readonly operation: string;
  /** Install and component: no two of one place may be alive at once. */
  readonly place: string;
  readonly startMs: number;
  /** Null when it did not come to its end. */
  readonly endMs: number | null;
}

/** Everything written so far; a missing file is an empty ledger. */
export async function readLedger(file: string): Promise<LedgerEntry[]> {
  const text = await readFile(file, "utf8").catch(() => "");
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as LedgerEntry);
}

/** Entries paired to executions, in the order in which they began. */
export function executionsOf(entries: readonly LedgerEntry[]): Execution[] {
  const keyOf = (entry: LedgerEntry) => `${entry.job}.${entry.epoch}.${entry.pid}`;
  const ends = new Map(
    entries
      .filter(({ phase }) => phase === "end")
      .map((entry) => [keyOf(entry), entry.monotonicMs] as const),
  );
  return entries
    .filter(({ phase }) => phase === "start")
    .map((entry) => ({
      job: entry.job,
      epoch: entry.epoch,
      operation: entry.operation,
      place: `${entry.install ?? "vendor"}/${entry.component}`,
      startMs: entry.monotonicMs,
      endMs: ends.get(keyOf(entry)) ?? null,
    }))
    .sort((a, b) => a.startMs - b.startMs);
}
