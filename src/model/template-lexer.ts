/**
 * Cuts the text of a template into tokens: plain text, and what stands between `{{` and `}}`.
 *
 * Trim markers and comments are dealt with here, so that the parser sees neither.
 */
import { TemplateError } from "./template-error.ts";

export type TokenKind =
  | "text"
  | "open"
  | "close"
  | "field"
  | "dot"
  | "variable"
  | "word"
  | "string"
  | "number"
  | "symbol"
  | "end";

export interface Token {
  readonly kind: TokenKind;
  /** Text, name without its dot or `$`, symbol, or a string's content. */
  readonly text: string;
  readonly offset: number;
  /** White space stands before it: `.a .b` are two paths, `.a.b` is one. */
  readonly spaced: boolean;
}

const space = /[ \t\r\n]+/y;
const commentOpen = /\{\{(?:-[ \t\r\n]+)?\/\*/y;
const commentClose = /\*\/(?:[ \t\r\n]+-)?\}\}/y;
const trimOpen = /\{\{-(?=[ \t\r\n])/y;
const close = /(?:[ \t\r\n]+-)?\}\}/y;
const field = /\.([\p{L}_][\p{L}\p{N}_]*)/uy;
const variable = /\$([\p{L}\p{N}_]*)/uy;
const word = /[\p{L}_][\p{L}\p{N}_]*/uy;
const number = /[+-]?(?:0[xX][0-9a-fA-F]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)/y;
const quoted = /"(?:[^"\\\n]|\\.)*"/y;
const raw = /`[^`]*`/y;
const symbol = /:=|[|=(),]/y;

/** All tokens of a template, the last of kind `end`. */
export function lexTemplate(text: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  let trimNext = false;
  while (at < text.length) {
    const found = text.indexOf("{{", at);
    const open = found === -1 ? text.length : found;
    let plain = text.slice(at, open);
    if (trimNext) plain = plain.slice(match(space, plain, 0)?.[0].length ?? 0);
    trimNext = false;
    const comment = match(commentOpen, text, open);
    const trims = comment ? comment[0].startsWith("{{-") : match(trimOpen, text, open) !== null;
    if (trims) plain = trimSpaceEnd(plain);
    if (plain !== "") tokens.push({ kind: "text", text: plain, offset: at, spaced: false });
    if (open === text.length) break;
    const after = comment
      ? skipComment(text, open)
      : lexAction(text, open, open + (trims ? 3 : 2), tokens);
    at = after.at;
    trimNext = after.trims;
  }
  tokens.push({ kind: "end", text: "", offset: text.length, spaced: false });
  return tokens;
}

interface After {
  readonly at: number;
  readonly trims: boolean;
}

function skipComment(text: string, open: number): After {
  const end = text.indexOf("*/", open);
  const closing = end === -1 ? null : match(commentClose, text, end);
  if (!closing) {
    throw new TemplateError(
      "Expected the comment to end with `*/}}`, got something else.",
      text,
      open,
    );
  }
  return { at: end + closing[0].length, trims: closing[0].length > 4 };
}

function lexAction(text: string, open: number, from: number, tokens: Token[]): After {
  tokens.push({ kind: "open", text: "{{", offset: open, spaced: false });
  let at = from;
  let spaced = false;
  for (;;) {
    const closing = match(close, text, at);
    if (closing) {
      tokens.push({ kind: "close", text: "}}", offset: at, spaced });
      return { at: at + closing[0].length, trims: closing[0].length > 2 };
    }
    const blank = match(space, text, at);
    if (blank) {
      at += blank[0].length;
      spaced = true;
      continue;
    }
    if (at >= text.length) {
      throw new TemplateError("Expected `}}` to close this `{{`, got the end.", text, open);
    }
    const token = lexToken(text, at, spaced);
    tokens.push(token.token);
    at = token.at;
    spaced = false;
  }
}

function lexToken(text: string, at: number, spaced: boolean): { token: Token; at: number } {
  const take = (kind: TokenKind, content: string, length: number) => ({
    token: { kind, text: content, offset: at, spaced },
    at: at + length,
  });
  let found = match(field, text, at);
  if (found) return take("field", found[1] ?? "", found[0].length);
  if (text[at] === ".") return take("dot", ".", 1);
  found = match(variable, text, at);
  if (found) return take("variable", found[1] ?? "", found[0].length);
  found = match(number, text, at);
  if (found) return take("number", found[0], found[0].length);
  found = match(word, text, at);
  if (found) return take("word", found[0], found[0].length);
  found = match(quoted, text, at);
  if (found) return take("string", unquote(found[0], text, at), found[0].length);
  found = match(raw, text, at);
  if (found) return take("string", found[0].slice(1, -1), found[0].length);
  found = match(symbol, text, at);
  if (found) return take("symbol", found[0], found[0].length);
  throw new TemplateError(explainCharacter(text, at), text, at);
}

function explainCharacter(text: string, at: number): string {
  const character = String.fromCodePoint(text.codePointAt(at) ?? 32);
  if (character === '"' || character === "`") {
    return `Expected a closing ${character} for this text, got the end. Close it.`;
  }
  if (character === "'") return "Expected text in double quotes, got `'`. Write it in `\"`.";
  if (character === "-") {
    return 'Expected a name of letters, digits and `_`, got `-`. Use `index`: `index .nuon.components "my-name"`.';
  }
  return `Expected a path, a function or a value, got \`${character}\`.`;
}

const escapes: Record<string, string> = {
  n: "\n",
  t: "\t",
  r: "\r",
  a: "\x07",
  b: "\b",
  f: "\f",
  v: "\v",
  "\\": "\\",
  '"': '"',
  "'": "'",
};

function unquote(literal: string, text: string, offset: number): string {
  return literal
    .slice(1, -1)
    .replace(/\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))/gs, (whole, unicode, hex, letter) => {
      if (unicode || hex) return String.fromCharCode(Number.parseInt(unicode ?? hex, 16));
      const plain = escapes[letter];
      if (plain !== undefined) return plain;
      throw new TemplateError(
        `Expected an escape such as \`\\n\`, got \`${whole}\`.`,
        text,
        offset,
      );
    });
}

/** Only what the template language calls space; a loop, since a pattern would backtrack. */
function trimSpaceEnd(text: string): string {
  let end = text.length;
  while (end > 0 && " \t\r\n".includes(text.charAt(end - 1))) end--;
  return text.slice(0, end);
}

function match(pattern: RegExp, text: string, at: number): RegExpExecArray | null {
  pattern.lastIndex = at;
  return pattern.exec(text);
}
