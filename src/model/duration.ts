/**
 * Durations as people write them in app files: `30s`, `2m30s`, `1.5h`. No days: a day is not always
 * 24 hours.
 */

const form = /^(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+$/;
const part = /(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)/g;
const unitMs: Record<string, number> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

/** Milliseconds, rounded, or null for text that is no duration. */
export function parseDuration(text: string): number | null {
  if (text.length > 64 || !form.test(text)) return null;
  let totalMs = 0;
  for (const [, number = "", unit = ""] of text.matchAll(part)) {
    totalMs += Number(number) * (unitMs[unit] ?? 0);
  }
  return Math.round(totalMs);
}
