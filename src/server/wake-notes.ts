/**
 * What servers tell each other through NOTIFY, as text: topics to look at, and the newest progress of
 * running jobs, which people watch and nothing depends on.
 *
 * Invariant: no text is longer than PostgreSQL takes (8,000 bytes), however much there is to tell.
 */
import type { Progress } from "./context.ts";
import { everyTopic, type WakeTopic } from "./wake.ts";

/** PostgreSQL takes 7,999 bytes; JSON's own signs are in this. */
export const noteBytesMax = 7000;
/** More topics than this at once become one: everything. */
export const topicsMax = 3000;
const labelLengthMax = 200;
/** Progress is worth a few notes, never a flood: what does not fit is told the next time. */
export const progressMax = 200;

/** A job's newest progress; null when there is none any more. */
export type ProgressNote = readonly [jobId: string, progress: Progress | null];

export interface Note {
  readonly topics: readonly (WakeTopic | typeof everyTopic)[];
  readonly progress: readonly ProgressNote[];
}

/** The texts of all there is to tell, as few as possible. */
export function writeNotes(topics: Iterable<string>, progress: readonly ProgressNote[]): string[] {
  const notes: string[] = [];
  let parts: { topics: unknown[]; progress: unknown[] } = { topics: [], progress: [] };
  let bytes = 0;
  function add(list: "topics" | "progress", value: unknown): void {
    const size = Buffer.byteLength(JSON.stringify(value)) + 1;
    if (size > noteBytesMax) return;
    if (bytes + size > noteBytesMax) flush();
    parts[list].push(value);
    bytes += size;
  }
  function flush(): void {
    notes.push(JSON.stringify(parts));
    parts = { topics: [], progress: [] };
    bytes = 0;
  }
  const all = [...topics];
  for (const topic of all.length > topicsMax ? [everyTopic] : all) add("topics", topic);
  for (const [jobId, value] of progress) {
    add("progress", [jobId, value && { ...value, label: value.label.slice(0, labelLengthMax) }]);
  }
  if (bytes > 0) flush();
  return notes;
}

/** Reads a note of another server; what cannot be read wakes everything, since something was told. */
export function readNote(text: string): Note {
  try {
    const { topics, progress } = JSON.parse(text);
    if (Array.isArray(topics) && Array.isArray(progress)) return { topics, progress };
  } catch {
    // Of another version, or not of ours.
  }
  return { topics: [everyTopic], progress: [] };
}
