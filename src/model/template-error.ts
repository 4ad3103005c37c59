/**
 * The one error that parsing or rendering a template may throw.
 *
 * It says where in the template's text the cause is, so that whoever holds the file can point at it.
 * Its message names keys and paths, never values: a value may be secret.
 */

const excerptLength = 80;

export class TemplateError extends Error {
  override readonly name = "TemplateError";
  /** Without the place and the excerpt, for callers that show their own. */
  readonly reason: string;
  readonly offset: number;
  readonly line: number;
  readonly column: number;

  constructor(reason: string, text: string, offset: number) {
    const { line, column } = placeOf(text, offset);
    super(`${reason} (line ${line}, column ${column} of \`${excerptOf(text, offset)}\`)`);
    this.reason = reason;
    this.offset = offset;
    this.line = line;
    this.column = column;
  }
}

/** Line and column, counted from 1, of an offset into a text. */
export function placeOf(text: string, offset: number): { line: number; column: number } {
  const before = text.slice(0, offset);
  const lineStart = before.lastIndexOf("\n") + 1;
  let line = 1;
  for (const letter of before) if (letter === "\n") line++;
  return { line, column: offset - lineStart + 1 };
}

/** The line of the text that holds the offset, cut to a length that fits into a message. */
function excerptOf(text: string, offset: number): string {
  const start = text.lastIndexOf("\n", offset - 1) + 1;
  const end = text.indexOf("\n", offset);
  const line = text.slice(start, end === -1 ? undefined : end);
  if (line.length <= excerptLength) return line;
  const from = Math.max(0, Math.min(offset - start - 20, line.length - excerptLength));
  return `${from > 0 ? "…" : ""}${line.slice(from, from + excerptLength)}…`;
}
