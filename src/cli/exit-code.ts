/**
 * How `landfall` ends, so that scripts can tell one kind of failure from another.
 *
 *    0  done
 *    1  the operation failed: a build, a deploy or a removal did not come to its end
 *    2  bad usage or bad input: an unknown option, an app directory with errors
 *    3  the server is away: it did not answer, or not in time
 *    4  refused: no token or a wrong one, no such thing, a conflict with what is there
 *   70  a bug in Landfall itself; the only case in which a stack trace is shown
 */
import { type FaultCode, isFault } from "../model/fault.ts";

export const exitCodes = {
  done: 0,
  failed: 1,
  usage: 2,
  away: 3,
  refused: 4,
  bug: 70,
} as const;
export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

const codeOfFault: Readonly<Record<FaultCode, ExitCode>> = {
  invalid: exitCodes.usage,
  too_large: exitCodes.usage,
  unavailable: exitCodes.away,
  unauthorized: exitCodes.refused,
  forbidden: exitCodes.refused,
  not_found: exitCodes.refused,
  conflict: exitCodes.refused,
};

/** The exit code for whatever a command threw. */
export function exitCodeOf(error: unknown): ExitCode {
  return isFault(error) ? codeOfFault[error.code] : exitCodes.bug;
}
