/**
 * The one error class for a refusal that the caller can act on.
 *
 * A failing operation is an `Outcome`, an absent thing is `null`, and anything else that is thrown
 * is a bug: it is logged whole and shown as "internal error". The message has one grammar: what was
 * expected, what was got, what to do. It never holds a secret.
 */

export type FaultCode =
  | "invalid"
  | "unauthorized"
  | "forbidden"
  | "not_found"
  | "conflict"
  | "too_large"
  | "unavailable";

/** Where in a file that a person wrote the cause lies; lines and columns count from 1. */
export interface Position {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/** One of several problems that are reported together. */
export interface Problem {
  readonly severity: "error" | "warning";
  readonly message: string;
  readonly position: Position | null;
}

export class Fault extends Error {
  override readonly name = "Fault";
  readonly code: FaultCode;
  readonly problems: readonly Problem[];

  constructor(
    code: FaultCode,
    message: string,
    options: { problems?: readonly Problem[]; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.problems = options.problems ?? [];
  }
}

/** True for a refusal with this code (any code when none is named). */
export function isFault(error: unknown, code?: FaultCode): error is Fault {
  return error instanceof Fault && (code === undefined || error.code === code);
}

/** What may be shown to a person of anything that was thrown. */
export function describeError(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
