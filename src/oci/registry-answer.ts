/**
 * What a registry's answer means to a client: which fault a refusal is, in words that say who
 * answered what, and what to do.
 */
import type { IncomingMessage } from "node:http";
import { Fault, type FaultCode } from "../model/fault.ts";
import type { Digest } from "../model/json.ts";
import { ContentFault } from "./content-fault.ts";
import { readAnswer } from "./http-transport.ts";

const errorBytesMax = 64 * 1024;
const messageLengthMax = 500;

const advice: { readonly [code in FaultCode]: string } = {
  invalid: "Correct what was sent.",
  unauthorized: "Give it valid credentials.",
  forbidden: "Use credentials that allow this.",
  not_found: "Push it first, or name another.",
  conflict: "Wait for the other writer, then try again.",
  too_large: "Make it smaller.",
  unavailable: "Look into its log and its disk, then try again.",
};

/** Returns when the status is one of those expected; otherwise throws what the answer means. */
export async function requireStatus(
  response: IncomingMessage,
  expected: readonly number[],
  place: string,
  what: string,
  digest: Digest | null,
): Promise<void> {
  const status = response.statusCode ?? 0;
  if (expected.includes(status)) return;
  const { code, message } = await readError(response);
  const faultCode = faultCodeOf(status);
  const text = `Expected ${place} to ${what}${digest ? ` (${digest})` : ""}, got ${status}${code}${message}. ${advice[faultCode]}`;
  if (code === " DIGEST_INVALID") throw new ContentFault("mismatch", digest, text);
  if (code === " MANIFEST_BLOB_UNKNOWN" || status === 404) {
    throw new ContentFault("missing", digest, text);
  }
  throw new Fault(faultCode, text);
}

function faultCodeOf(status: number): FaultCode {
  if (status === 401) return "unauthorized";
  if (status === 403) return "forbidden";
  if (status === 404) return "not_found";
  if (status === 409) return "conflict";
  if (status === 413) return "too_large";
  return status >= 500 ? "unavailable" : "invalid";
}

async function readError(response: IncomingMessage): Promise<{ code: string; message: string }> {
  try {
    const { errors } = JSON.parse((await readAnswer(response, errorBytesMax)).toString("utf8"));
    const { code, message } = errors[0];
    const text = String(message).slice(0, messageLengthMax).replace(/\.$/, "");
    return { code: ` ${String(code).slice(0, 64)}`, message: `: ${text}` };
  } catch {
    // The status says enough; an answer without the standard's JSON has nothing to add.
    response.destroy();
    return { code: "", message: "" };
  }
}
