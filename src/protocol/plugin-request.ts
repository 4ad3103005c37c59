/**
 * What executor and plugin say to each other, at the process boundary: the plugin reads one request
 * (JSON, to the end of stdin) and writes events, one JSON object a line, on stdout; it ends with
 * exactly one `outcome` and exit code 0. Whatever it prints on stderr becomes log lines.
 *
 * Anyone can write a plugin in any language; built-in plugins are ordinary plugins.
 */
import { z } from "zod";
import { outcomeCodes } from "../model/job.ts";
import { EpochSchema, JobIdText, JsonRecord, JsonValue } from "./json-schema.ts";

export const PluginRequest = z.object({
  version: z.literal(1),
  operation: z.enum(["build", "plan", "apply", "destroy", "provision"]),
  /** Which try of which job this is: fences what the plugin writes where that can be fenced. */
  job: z.object({ id: JobIdText, epoch: EpochSchema }),
  install: z.object({ id: z.string(), name: z.string() }).nullable(),
  /** The component, or the sandbox under the name `sandbox`, with every template rendered. */
  component: z.object({ name: z.string(), type: z.string(), config: JsonRecord }),
  /** build: the unpacked source (empty when there is none). */
  sourceDirectory: z.string().nullable(),
  /** build: the plugin puts here what the artifact shall hold. */
  outputDirectory: z.string().nullable(),
  /** plan, apply, destroy: the unpacked artifact, read only, at a path that stays for the install's life. */
  artifactDirectory: z.string().nullable(),
  artifactDigest: z.string().nullable(),
  /** What the last apply of this component left as its state, or null. Kept in the install's store. */
  state: JsonValue.nullable(),
  /** apply: exactly what `plan` gave. */
  plan: JsonValue.nullable(),
  /** A scratch folder of this job alone. */
  workDirectory: z.string(),
  /**
   * plan, apply, destroy: Terraform's `http` backend over the install's store, for this job alone
   * (plan may only read); null where there is no store.
   */
  stateBackend: z
    .object({ address: z.string(), username: z.string(), password: z.string() })
    .nullable(),
  /** Where the supervisor takes its orders; null where there is none. */
  supervisorDirectory: z.string().nullable(),
  /** provision and destroy of a local sandbox. */
  sandbox: z
    .object({
      installsDirectory: z.string(),
      programs: z.object({
        agent: z.array(z.string()),
        registry: z.array(z.string()),
        executor: z.array(z.string()),
      }),
      enrolment: z.object({ serverUrl: z.string(), code: z.string() }).nullable(),
    })
    .nullable(),
});
export type PluginRequest = z.output<typeof PluginRequest>;

export const PluginEvent = z.discriminatedUnion("type", [
  z.object({ type: z.literal("log"), line: z.string() }),
  z.object({
    type: z.literal("progress"),
    label: z.string(),
    done: z.number(),
    total: z.number().nullable(),
    unit: z.enum(["bytes", "steps"]),
  }),
  /** apply, provision: something that others may refer to. */
  z.object({
    type: z.literal("output"),
    name: z.string().regex(/^[a-zA-Z][a-zA-Z0-9_-]*$/),
    value: JsonValue,
    sensitive: z.boolean(),
  }),
  /** apply: what the next operation gets as `state`; may be sent more than once, the last counts. */
  z.object({ type: z.literal("state"), state: JsonValue }),
  /** plan: the plan itself (kept in the install) and what a person sees of it (redacted by the executor). */
  z.object({ type: z.literal("plan"), plan: JsonValue, diff: z.string(), changes: z.boolean() }),
  z.object({
    type: z.literal("outcome"),
    status: z.enum(["succeeded", "failed"]),
    code: z.enum(outcomeCodes).exactOptional(),
    message: z.string().exactOptional(),
  }),
]);
export type PluginEvent = z.output<typeof PluginEvent>;
