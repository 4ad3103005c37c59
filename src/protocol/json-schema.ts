/** The small schemas that all the others are made of. */
import { z } from "zod";
import type { AgentId, AppId, InstallId, JobId } from "../model/ids.ts";
import type { Digest, Json, JsonObject } from "../model/json.ts";

const idText = (prefix: string) => z.string().regex(new RegExp(`^${prefix}_[0-9a-z]{24}$`));

export const AppIdText = idText("app").transform((text) => text as AppId);
export const InstallIdText = idText("ins").transform((text) => text as InstallId);
export const JobIdText = idText("job").transform((text) => text as JobId);
export const AgentIdText = idText("agt").transform((text) => text as AgentId);

export const DigestText = z
  .string()
  .regex(/^sha256:[0-9a-f]{64}$/)
  .transform((text) => text as Digest);

export const JsonValue = z.json().transform((value) => value as Json);
export const JsonRecord = z.record(z.string(), z.json()).transform((value) => value as JsonObject);

export const EpochSchema = z.object({
  generation: z.int().min(1),
  n: z.int().min(1),
});
