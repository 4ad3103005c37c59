/** How a measurement tells what it found. */
import type { BenchOptions } from "./options.ts";

export interface Aim {
  readonly name: string;
  /** A ratio to a baseline of the same run: machines are noisy. */
  readonly value: number;
  readonly aim: string;
  readonly ok: boolean;
}

export interface Report {
  readonly rows: readonly (readonly [label: string, value: string])[];
  readonly aims: readonly Aim[];
}

/** A measurement; `say` tells a person what it is at. */
export type Bench = (say: (line: string) => void, options: BenchOptions) => Promise<Report>;

/** A table, then one line of JSON. */
export function formatReport(bench: string, { rows, aims }: Report): string {
  const width = Math.max(...rows.map(([label]) => label.length));
  const table = rows.map(([label, value]) => `${label.padEnd(width)}  ${value}`);
  const ok = aims.every((aim) => aim.ok);
  return `${table.join("\n")}\n${JSON.stringify({ bench, ok, aims })}\n`;
}

/** The middle of several measurements. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
