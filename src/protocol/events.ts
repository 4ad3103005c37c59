/**
 * What an executor writes, one JSON object a line, numbered from 1 without a hole, in `events.ndjson`
 * of the job's folder; the same objects travel to the server and are kept as log chunks.
 *
 * No sensitive value is in any of them: the executor redacts before it writes.
 */
import { z } from "zod";
import { outcomeCodes } from "../model/job.ts";
import { DigestText, JsonValue } from "./json-schema.ts";

export const OutputSchema = z.discriminatedUnion("sensitive", [
  z.object({ sensitive: z.literal(false), value: JsonValue }),
  z.object({ sensitive: z.literal(true), hash: z.string() }),
]);

export const PlanReferenceSchema = z.object({
  planDigest: DigestText,
  diffDigest: DigestText,
  baseDigest: DigestText,
  approvalDigest: DigestText,
  changes: z.boolean(),
  diff: z.string(),
});

export const OutcomeSchema = z.object({
  status: z.enum(["succeeded", "failed", "cancelled"]),
  code: z.enum(outcomeCodes).exactOptional(),
  message: z.string().exactOptional(),
  artifact: z
    .object({ repository: z.string(), digest: DigestText, sizeBytes: z.int().min(0) })
    .exactOptional(),
  copied: z
    .array(z.object({ repository: z.string(), digest: DigestText, bytes: z.int().min(0) }))
    .exactOptional(),
  bytesCopied: z.int().min(0).exactOptional(),
  plan: PlanReferenceSchema.exactOptional(),
  outputs: z.record(z.string(), OutputSchema).exactOptional(),
  outputsHash: z.string().exactOptional(),
  conflicts: z.array(z.string()).max(100).exactOptional(),
});

const numbered = { seq: z.int().min(1), at: z.string() };

export const JobEvent = z.discriminatedUnion("type", [
  z.object({
    ...numbered,
    type: z.literal("log"),
    stream: z.enum(["stdout", "stderr", "system"]),
    line: z.string(),
  }),
  z.object({
    ...numbered,
    type: z.literal("progress"),
    label: z.string(),
    done: z.number(),
    total: z.number().nullable(),
    unit: z.enum(["bytes", "steps"]),
  }),
  /** Lines that had to give way where they were spooled: it stands for the numbers `seq` to `last`. */
  z.object({
    ...numbered,
    type: z.literal("gap"),
    last: z.int().min(1),
    reason: z.string(),
  }),
  z.object({ ...numbered, type: z.literal("outcome"), outcome: OutcomeSchema }),
]);
export type JobEvent = z.output<typeof JobEvent>;

/** The last number that an event stands for. */
export function lastSeqOf(event: JobEvent): number {
  return event.type === "gap" ? event.last : event.seq;
}

/** Lines longer than this are cut, with a mark. */
export const logLineBytesMax = 16_384;
