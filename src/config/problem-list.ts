/** Collects what is wrong with an app, so that all of it is told at once and in the order of the files. */
import type { Position, Problem } from "../model/fault.ts";

/** Beyond this nobody reads on. */
const problemsMax = 500;

export interface ProblemList {
  error(position: Position | null, message: string): void;
  warn(position: Position | null, message: string): void;
  hasErrors(): boolean;
  /** Sorted by file, line and column; no problem twice. */
  all(): Problem[];
}

/** An empty list. */
export function createProblemList(): ProblemList {
  const problems = new Map<string, Problem>();
  let errors = 0;
  function add(problem: Problem): void {
    if (problem.severity === "error") errors++;
    if (problems.size < problemsMax) problems.set(JSON.stringify(problem), problem);
  }
  return {
    error: (position, message) => add({ severity: "error", position, message }),
    warn: (position, message) => add({ severity: "warning", position, message }),
    hasErrors: () => errors > 0,
    all: () => [...problems.values()].sort(compareProblems),
  };
}

function compareProblems(a: Problem, b: Problem): number {
  const [left, right] = [a.position, b.position];
  if (!left || !right) return Number(left !== null) - Number(right !== null);
  if (left.file !== right.file) return left.file < right.file ? -1 : 1;
  return left.line - right.line || left.column - right.column;
}
