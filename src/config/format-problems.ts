/** Problems as a person reads them: place, sentence, and the line with a caret under its cause. */
import type { Position, Problem } from "../model/fault.ts";

const lineLengthMax = 160;

/**
 * `file:line:column: error: …`, one problem after another. With `readLine` the source line follows,
 * and a caret below the column.
 */
export function formatProblems(
  problems: readonly Problem[],
  readLine?: (file: string, line: number) => string | null,
): string {
  return problems.map((problem) => formatProblem(problem, readLine)).join("\n");
}

function formatProblem(
  { position, severity, message }: Problem,
  readLine?: (file: string, line: number) => string | null,
): string {
  if (!position) return `${severity}: ${message}`;
  const { file, line, column } = position;
  const first = `${file}:${line}:${column}: ${severity}: ${message}`;
  const source = readLine?.(file, line) ?? null;
  return source === null ? first : `${first}\n${showSource(source, position)}`;
}

function showSource(source: string, { line, column }: Position): string {
  const margin = `${line} | `.padStart(8);
  // Tabs stay tabs below, so that the caret stands under its letter.
  const indent = source.slice(0, column - 1).replace(/[^\t]/g, " ");
  if (source.length > lineLengthMax && column > lineLengthMax) return `${margin}…`;
  const shown = source.length > lineLengthMax ? `${source.slice(0, lineLengthMax)}…` : source;
  return `${margin}${shown}\n${" ".repeat(margin.length - 2)}| ${indent}^`;
}
