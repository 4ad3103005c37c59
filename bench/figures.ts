/** Numbers made readable, and the few statistics that the measurements need. */

/** The value below which this share of all values lies. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

/** The middle and the bad end of some durations. */
export function spread(values: readonly number[]): { p50: number; p99: number } {
  return { p50: percentile(values, 0.5), p99: percentile(values, 0.99) };
}

/** `p50 1.20 ms, p99 3.40 ms (n = 500)`. */
export function formatSpread(values: readonly number[]): string {
  const { p50, p99 } = spread(values);
  return `p50 ${formatMs(p50)}, p99 ${formatMs(p99)} (n = ${values.length})`;
}

/** Milliseconds, or seconds where that reads better. */
export function formatMs(value: number): string {
  if (Math.abs(value) >= 10_000) return `${(value / 1000).toFixed(1)} s`;
  return `${value.toFixed(Math.abs(value) < 100 ? 2 : 0)} ms`;
}

/** Two digits after the point are more than such measurements are worth. */
export function round(value: number): number {
  return Number(value.toFixed(2));
}
