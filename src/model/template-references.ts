/**
 * Which paths from the root a template certainly names, found without values: through blocks that
 * move the dot, parentheses, and `index` with fixed keys.
 */
import type { Expression, Reference } from "./template-syntax.ts";

/** What `.` is at a place in the text: a path from the root, or unknown. */
export type DotPath = readonly string[] | null;

/** A reference before its line and column are known. */
export type UnplacedReference = Pick<Reference, "path" | "offset" | "optional">;

/** Lines and columns in one pass over the text, however many references there are. */
export function placeReferences(text: string, unplaced: readonly UnplacedReference[]): Reference[] {
  let line = 1;
  let lineStart = 0;
  let at = 0;
  return [...unplaced]
    .sort((a, b) => a.offset - b.offset)
    .map((reference) => {
      for (; at < reference.offset; at++) {
        if (text[at] === "\n") [line, lineStart] = [line + 1, at + 1];
      }
      return { ...reference, line, column: reference.offset - lineStart + 1 };
    });
}

/** The path from the root that an expression certainly is, or null. */
export function staticPathOf(expression: Expression, dot: DotPath): DotPath {
  if (expression.kind === "dot") return dot && [...dot, ...expression.fields];
  if (expression.kind === "variable" && expression.name === "") return expression.fields;
  if (expression.kind === "group") {
    const inner = staticPathOf(expression.inner, dot);
    return inner && [...inner, ...expression.fields];
  }
  return null;
}

/** The path that `index .nuon.components "x" "outputs"` names, up to the first key that is not fixed. */
export function indexPathOf(args: readonly Expression[], dot: DotPath): DotPath {
  const [collection, ...keys] = args;
  const base = collection ? staticPathOf(collection, dot) : null;
  if (!base || base.length === 0) return null;
  const fixed: string[] = [];
  for (const key of keys) {
    if (key.kind !== "literal" || typeof key.value !== "string") break;
    fixed.push(key.value);
  }
  return fixed.length > 0 ? [...base, ...fixed] : null;
}
