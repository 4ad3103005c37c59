/**
 * What a job's program gives: lines of `key=value` or JSON objects, merged in order, as the app format
 * has it. Anything else fails the run, so that a slip is not silently lost.
 */
import type { JsonObject } from "../../model/json.ts";
import { OperationFailure } from "../../plugin/plugin.ts";

export const outputsBytesMax = 1024 * 1024;

/** The merged outputs of a file's text. */
export function parseOutputs(text: string): JsonObject {
  const whole = asObject(text.trim());
  if (whole) return whole;
  let outputs: JsonObject = {};
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    const pair = /^\s*([A-Za-z][A-Za-z0-9_-]*)=(.*)$/.exec(line);
    const given = asObject(line) ?? (pair ? { [pair[1] ?? ""]: (pair[2] ?? "").trimEnd() } : null);
    if (!given) {
      // The line itself is not shown: it may be a secret in the wrong form.
      throw new OperationFailure(
        `Expected line ${index + 1} of the outputs file to be \`key=value\` or a JSON object, got something else.`,
      );
    }
    outputs = { ...outputs, ...given };
  }
  return outputs;
}

function asObject(text: string): JsonObject | null {
  if (!text.trimStart().startsWith("{")) return null;
  try {
    return JSON.parse(text) as JsonObject;
  } catch {
    return null;
  }
}
