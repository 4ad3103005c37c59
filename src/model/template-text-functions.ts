/**
 * The functions of templates that make or change text.
 *
 * Each knows how long its result will be before making it, so that no template can exhaust memory.
 */
import type { Json } from "./json.ts";
import { formatPrintf } from "./template-printf.ts";
import {
  describeKind,
  formatValue,
  isEmpty,
  sortedKeys,
  type TemplateContext,
  type TemplateFunction,
  type TemplateValue,
} from "./template-values.ts";

const many = 1000;
const indentMax = 200;

type Text = (args: string[], context: TemplateContext) => TemplateValue;

export const textFunctions: Record<string, TemplateFunction> = {
  print: { min: 0, max: many, run: (args, context) => print(args as Json[], context) },
  printf: {
    min: 1,
    max: many,
    run: ([form = "", ...args], context) =>
      formatPrintf(textOf(form, context), args as Json[], context),
  },
  toString: onText(1, ([text = ""]) => text),
  int: { min: 1, max: 1, run: ([value = null], context) => toInteger(value as Json, context) },
  quote: {
    min: 0,
    max: many,
    run: (args, context) => quoteAll(args as Json[], context, JSON.stringify),
  },
  squote: {
    min: 0,
    max: many,
    run: (args, context) => quoteAll(args as Json[], context, (text) => `'${text}'`),
  },
  upper: onText(1, ([text = ""]) => text.toUpperCase()),
  lower: onText(1, ([text = ""]) => text.toLowerCase()),
  trim: onText(1, ([text = ""]) => text.trim()),
  trimPrefix: onText(2, ([prefix = "", text = ""]) =>
    text.startsWith(prefix) ? text.slice(prefix.length) : text,
  ),
  trimSuffix: onText(2, ([suffix = "", text = ""]) =>
    suffix !== "" && text.endsWith(suffix) ? text.slice(0, -suffix.length) : text,
  ),
  contains: onText(2, ([part = "", text = ""]) => text.includes(part)),
  hasPrefix: onText(2, ([prefix = "", text = ""]) => text.startsWith(prefix)),
  hasSuffix: onText(2, ([suffix = "", text = ""]) => text.endsWith(suffix)),
  replace: onText(3, replace),
  split: onText(2, ([separator = "", text = ""], context) =>
    Object.fromEntries(splitText(separator, text, context).map((part, at) => [`_${at}`, part])),
  ),
  splitList: onText(2, ([separator = "", text = ""], context) =>
    splitText(separator, text, context),
  ),
  join: {
    min: 2,
    max: 2,
    run: ([separator = "", items = null], context) =>
      join(textOf(separator, context), items as Json, context),
  },
  b64enc: onText(1, ([text = ""]) => Buffer.from(text, "utf8").toString("base64")),
  b64dec: onText(1, decodeBase64),
  indent: {
    min: 2,
    max: 2,
    run: ([width = 0, text = ""], context) => indent(width as Json, textOf(text, context), context),
  },
  nindent: {
    min: 2,
    max: 2,
    run: ([width = 0, text = ""], context) =>
      `\n${indent(width as Json, textOf(text, context), context)}`,
  },
  toJson: {
    min: 1,
    max: 1,
    run: ([value = null], context) => writeJson(value as Json, context, undefined),
  },
  toPrettyJson: {
    min: 1,
    max: 1,
    run: ([value = null], context) => writeJson(value as Json, context, "  "),
  },
  fromJson: onText(1, readJson),
  required: {
    min: 2,
    max: 2,
    lazy: true,
    run: ([message = "", value = null], context) => requireValue(message, value, context),
  },
};

/** A function all of whose arguments are taken as text. */
function onText(count: number, run: Text): TemplateFunction {
  return {
    min: count,
    max: count,
    run: (args, context) =>
      run(
        args.map((value) => textOf(value, context)),
        context,
      ),
  };
}

/** The text of a value, as long as it may be. Arguments are already unwrapped here. */
function textOf(value: TemplateValue, context: TemplateContext): string {
  const text = formatValue(value as Json);
  context.limit(text.length);
  return text;
}

/** Like Go: a space stands between two values neither of which is text. */
function print(args: readonly Json[], context: TemplateContext): string {
  let text = "";
  args.forEach((value, at) => {
    const spaced = at > 0 && typeof value !== "string" && typeof args[at - 1] !== "string";
    text += (spaced ? " " : "") + textOf(value, context);
    context.limit(text.length);
  });
  return text;
}

function quoteAll(
  args: readonly Json[],
  context: TemplateContext,
  quote: (text: string) => string,
) {
  const texts = args.filter((value) => value !== null).map((value) => textOf(value, context));
  context.limit(texts.reduce((sum, text) => sum + text.length + 3, 0));
  return texts.map(quote).join(" ");
}

function replace([from = "", to = "", text = ""]: string[], context: TemplateContext): string {
  const count = from === "" ? text.length + 1 : text.split(from).length - 1;
  context.spend(count);
  context.limit(text.length + count * to.length);
  return text.replaceAll(from, () => to);
}

function splitText(separator: string, text: string, context: TemplateContext): string[] {
  const parts = text.split(separator);
  context.spend(parts.length);
  return parts;
}

function join(separator: string, items: Json, context: TemplateContext): string {
  if (!Array.isArray(items)) return textOf(items, context);
  const texts = items.map((item: Json) => textOf(item, context));
  context.limit(texts.reduce((sum, text) => sum + text.length + separator.length, 0));
  return texts.join(separator);
}

function decodeBase64([text = ""]: string[], context: TemplateContext): string {
  const compact = text.replace(/\s+/g, "");
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(compact)) context.fail("Expected base64, got other text.");
  return Buffer.from(compact, "base64").toString("utf8");
}

function indent(width: Json, text: string, context: TemplateContext): string {
  if (typeof width !== "number" || !(width >= 0 && width <= indentMax)) {
    return context.fail(`Expected an indent of 0 to ${indentMax} spaces, got something else.`);
  }
  const lines = text.split("\n");
  context.limit(text.length + lines.length * width);
  return lines.map((line) => " ".repeat(width) + line).join("\n");
}

function writeJson(value: Json, context: TemplateContext, space: string | undefined): string {
  const sorted = (_key: string, inner: Json) =>
    inner !== null && typeof inner === "object" && !Array.isArray(inner)
      ? Object.fromEntries(
          sortedKeys(inner as { [key: string]: Json }).map((key) => [
            key,
            (inner as { [key: string]: Json })[key],
          ]),
        )
      : inner;
  const text = JSON.stringify(value, sorted, space);
  context.limit(text.length);
  return text;
}

function readJson([text = ""]: string[], context: TemplateContext): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    // The parser's own message quotes the text, which may be secret.
    return context.fail("Expected text that is JSON, got text that is not.");
  }
}

function toInteger(value: Json, context: TemplateContext): number {
  if (typeof value === "boolean") return value ? 1 : 0;
  const number = typeof value === "string" ? Number(value.trim() || "x") : value;
  if (typeof number !== "number" || !Number.isFinite(number)) {
    return context.fail(`Expected a number, got ${describeKind(value)} that is none.`);
  }
  return Math.trunc(number);
}

function requireValue(message: TemplateValue, value: TemplateValue, context: TemplateContext) {
  if (!isEmpty(context.reveal(value))) return value;
  const why = typeof message === "string" ? message : "it is required.";
  return context.fail(`Expected a value, got none: ${why}`);
}
