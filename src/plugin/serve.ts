/**
 * The run-time side of a plugin: one request in, events out, exactly one outcome at the end.
 *
 * Invariant: whatever the operation does, the executor hears an outcome; only a `PluginCrash` (and a
 * real crash) ends without one.
 */
import type { Readable, Writable } from "node:stream";
import type { z } from "zod";
import { describeError, Fault } from "../model/fault.ts";
import type { Json } from "../model/json.ts";
import { type PluginEvent, PluginRequest } from "../protocol/plugin-request.ts";
import { OperationFailure, type Plugin, type PluginContext, PluginCrash } from "./plugin.ts";

/** Requests hold a plan, and a plan may hold a whole Terraform plan file. */
export const requestBytesMax = 128 * 1024 * 1024;

/** What the process gives to its plugin. */
export interface PluginProcess {
  readonly input: Readable;
  readonly output: Writable;
  readonly signal: AbortSignal;
  readonly searchPath: string;
}

/** Serves one request and returns the exit code that the process shall end with. */
export async function servePlugin(plugin: Plugin, process: PluginProcess): Promise<number> {
  const emit = (event: PluginEvent) => process.output.write(`${JSON.stringify(event)}\n`);
  try {
    const request = parseRequest(await readAll(process.input));
    const operation = plugin.operations[request.operation];
    if (!operation) {
      throw new OperationFailure(
        `Expected one of ${plugin.sheet.operations.join(", ")}, got \`${request.operation}\`: the plugin \`${plugin.sheet.name}\` cannot do it.`,
      );
    }
    await operation(contextFor(request, process, emit));
    emit({ type: "outcome", status: "succeeded" });
  } catch (error) {
    if (error instanceof PluginCrash) return error.exitCode;
    const code = error instanceof OperationFailure ? error.code : "operation_failed";
    emit({ type: "outcome", status: "failed", code, message: describeError(error) });
  }
  return 0;
}

/** The component's configuration by a schema; a wrong one is a failure that names every key. */
export function parseConfig<Schema extends z.ZodType>(
  schema: Schema,
  request: PluginRequest,
): z.output<Schema> {
  const parsed = schema.safeParse(request.component.config);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map(
    (issue) => `\`${issue.path.join(".") || "(all)"}\`: ${issue.message}`,
  );
  throw new OperationFailure(
    `Expected a valid configuration of \`${request.component.name}\` (${request.component.type}), got ${problems.join("; ")}. Correct the component's file.`,
  );
}

/** A folder or value of the request that this operation cannot do without. */
export function requireGiven<T>(value: T | null, name: string): T {
  if (value === null) throw new OperationFailure(`Expected \`${name}\` in the request, got none.`);
  return value;
}

function contextFor(
  request: PluginRequest,
  { signal, searchPath }: PluginProcess,
  emit: (event: PluginEvent) => void,
): PluginContext {
  return {
    request,
    signal,
    searchPath,
    log: (line) => emit({ type: "log", line }),
    reportProgress: (label, done, total, unit = "steps") =>
      emit({ type: "progress", label, done, total, unit }),
    giveOutput: (name, value: Json, { sensitive } = { sensitive: false }) =>
      emit({ type: "output", name, value, sensitive }),
    saveState: (state) => emit({ type: "state", state }),
    givePlan: (change) => emit({ type: "plan", ...change }),
  };
}

function parseRequest(bytes: Uint8Array): PluginRequest {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder().decode(bytes));
  } catch (error) {
    throw new Fault("invalid", `Expected a request in JSON, got ${bytes.byteLength} other bytes.`, {
      cause: error,
    });
  }
  const parsed = PluginRequest.safeParse(value);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map((issue) => `${issue.path.join(".")}: ${issue.message}`);
  throw new Fault("invalid", `Expected a plugin request of version 1, got ${problems.join("; ")}.`);
}

async function readAll(input: Readable): Promise<Uint8Array> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of input) {
    const bytes = Buffer.from(chunk);
    size += bytes.byteLength;
    if (size > requestBytesMax) {
      throw new Fault("too_large", `Expected a request of at most ${requestBytesMax} bytes.`);
    }
    chunks.push(bytes);
  }
  return Buffer.concat(chunks);
}
