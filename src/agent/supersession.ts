/**
 * What an agent remembers of having been superseded: another one has its identity. Started again by
 * whoever keeps it running, it waits before it connects, so that the two do not throw each other out
 * in turn.
 *
 * Invariant: the time is the machine's own monotonic clock with the boot it belongs to; a wall clock
 * that jumps neither shortens nor lengthens the wait.
 */
import { join } from "node:path";
import { z } from "zod";
import { replaceFile } from "../files/replace-file.ts";
import { ownProcess } from "../protocol/process-identity.ts";
import { readText } from "./foreign-file.ts";

/** At least this long after the last time, and at most twice as long. */
export const supersessionRestMs = 60_000;
const recordBytesMax = 4096;

const Supersession = z.object({ agentId: z.string(), atMs: z.number(), bootId: z.string() });
export type Supersession = z.output<typeof Supersession>;

/** Remembers that this identity was superseded now. */
export function recordSupersession(
  directory: string,
  agentId: string,
  atMs: number,
): Promise<void> {
  const record: Supersession = { agentId, atMs, bootId: ownProcess().bootId };
  return replaceFile(supersessionPath(directory), JSON.stringify(record));
}

/** How long this identity must still wait before it connects; 0 where it was never superseded. */
export async function supersessionWaitMs(
  directory: string,
  agentId: string,
  nowMs: number,
  random: () => number,
): Promise<number> {
  const text = await readText(supersessionPath(directory), recordBytesMax);
  const record = text === null ? undefined : parse(text);
  const current = { agentId, bootId: ownProcess().bootId };
  if (record?.agentId !== current.agentId || record.bootId !== current.bootId) return 0;
  return restMs(record.atMs, nowMs, random);
}

/** The rest of the wait, with its jitter; pure. */
export function restMs(atMs: number, nowMs: number, random: () => number): number {
  if (nowMs < atMs || nowMs - atMs >= supersessionRestMs) return 0;
  return supersessionRestMs - (nowMs - atMs) + random() * supersessionRestMs;
}

function parse(text: string): Supersession | undefined {
  try {
    return Supersession.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/** Where it is remembered, in the agent's folder. */
export function supersessionPath(directory: string): string {
  return join(directory, "superseded.json");
}
