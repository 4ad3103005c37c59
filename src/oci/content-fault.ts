/**
 * The refusal of content that must not be used: it is missing, does not match its digest, or cannot
 * be read as what it claims to be. An executor gives it the outcome `bad_artifact`.
 */
import { Fault, type FaultCode } from "../model/fault.ts";
import type { Digest } from "../model/json.ts";

export type ContentFaultReason = "missing" | "mismatch" | "malformed" | "too_large";

const codes: { readonly [Reason in ContentFaultReason]: FaultCode } = {
  missing: "not_found",
  mismatch: "invalid",
  malformed: "invalid",
  too_large: "too_large",
};

/** A fault about content itself rather than about the way to it. */
export class ContentFault extends Fault {
  readonly reason: ContentFaultReason;
  readonly digest: Digest | null;

  constructor(
    reason: ContentFaultReason,
    digest: Digest | null,
    message: string,
    options: { cause?: unknown } = {},
  ) {
    super(codes[reason], message, options);
    this.reason = reason;
    this.digest = digest;
  }
}

/** True when this error, or what caused it, is about the content: trying again would not help. */
export function isBadContent(error: unknown): boolean {
  return findContentFault(error) !== null;
}

/** The fault about content behind an error, or null. */
export function findContentFault(error: unknown): ContentFault | null {
  for (
    let link = error, depth = 0;
    link instanceof Error && depth < 8;
    link = link.cause, depth++
  ) {
    if (link instanceof ContentFault) return link;
  }
  return null;
}
