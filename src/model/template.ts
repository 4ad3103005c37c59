/**
 * Templates in the configuration of components: Go's template syntax, as real apps use it.
 *
 * The vendor's side only parses (to check references and find dependencies); the executor renders,
 * inside the install. Landfall renders plain text: nothing is escaped for HTML, integers are printed
 * plainly, maps are walked in the order of their keys.
 *
 * A text that names neither `.nuon` nor `.landfall` in an action is passed through as it is, so that
 * braces that belong to other tools survive.
 */
import type { Json, JsonObject } from "./json.ts";
import { TemplateError } from "./template-error.ts";
import { parseTemplateText } from "./template-parser.ts";
import { type Rendered, renderNodes } from "./template-render.ts";
import type { Reference, Template } from "./template-syntax.ts";
import type { TemplateValue } from "./template-values.ts";

export { Sensitive } from "./sensitive.ts";
export type { Reference, Rendered, Template, TemplateValue };
export { TemplateError };

const rootUse = /\.(?:nuon|landfall)(?![\p{L}\p{N}_])/u;
const depthMax = 64;

/** Reads a text as a template; a text without a use of the root becomes itself. */
export function parseTemplate(text: string): Template {
  if (!usesRoot(text)) {
    return { text, nodes: text === "" ? [] : [{ kind: "text", text }], references: [] };
  }
  return parseTemplateText(text);
}

/** Every path below `.nuon` or `.landfall` that the template names, in the order of the text. */
export function referencesOf(template: Template): readonly Reference[] {
  return template.references;
}

/**
 * Renders a template over an install's values (what `.nuon` is). Throws a `TemplateError` for a value
 * that is not there, and nothing else.
 */
export function renderTemplate(template: Template, values: TemplateValue): Rendered {
  return guardStack(template.text, () => renderNodes(template, values));
}

/** Renders every text in a JSON tree, and gives the sensitive texts to redact, longest first. */
export function renderJson(
  value: Json,
  values: TemplateValue,
): { value: Json; sensitiveTexts: string[] } {
  const secrets = new Set<string>();
  const rendered = renderTree(value, values, secrets, 0);
  return { value: rendered, sensitiveTexts: [...secrets].sort((a, b) => b.length - a.length) };
}

function renderTree(value: Json, values: TemplateValue, secrets: Set<string>, depth: number): Json {
  if (depth > depthMax) {
    throw new TemplateError(`Expected at most ${depthMax} nested values, got more.`, "", 0);
  }
  if (typeof value === "string") {
    const rendered = renderTemplate(parseTemplate(value), values);
    for (const text of rendered.sensitiveTexts) secrets.add(text);
    return rendered.text;
  }
  if (Array.isArray(value)) {
    return value.map((item: Json) => renderTree(item, values, secrets, depth + 1));
  }
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value as JsonObject).map(([key, item]) => [
      key,
      renderTree(item, values, secrets, depth + 1),
    ]),
  );
}

/** True when `.nuon` or `.landfall` stands between braces. */
function usesRoot(text: string): boolean {
  const open = text.indexOf("{{");
  if (open === -1 || !rootUse.test(text)) return false;
  for (let at = open; at !== -1; ) {
    const end = actionEnd(text, at);
    if (rootUse.test(text.slice(at, end))) return true;
    at = text.indexOf("{{", end);
  }
  return false;
}

const quotedOrClose = /"(?:[^"\\\n]|\\.)*"|`[^`]*`|\}\}/g;

/** Behind the `}}` that closes the action at `open`, quotes respected; the text's end when none does. */
function actionEnd(text: string, open: number): number {
  quotedOrClose.lastIndex = open;
  for (let found = quotedOrClose.exec(text); found; found = quotedOrClose.exec(text)) {
    if (found[0] === "}}") return quotedOrClose.lastIndex;
  }
  return text.length;
}

/** Depth is bounded everywhere; should a stack still end first, it is the template's fault too. */
function guardStack<T>(text: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new TemplateError(
      "Expected a template that can be rendered, got one too large.",
      text,
      0,
    );
  }
}
