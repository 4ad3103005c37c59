/**
 * Renders a template's tree over an install's values. No I/O, no clock: the same values give the same
 * text.
 *
 * Invariants: a missing key is an error, never empty text; whatever was made by looking at a
 * sensitive value is itself sensitive; and there is an end to steps, depth and length.
 */
import type { Json } from "./json.ts";
import { Sensitive } from "./sensitive.ts";
import { TemplateError } from "./template-error.ts";
import { templateFunctions } from "./template-functions.ts";
import { explainMissing } from "./template-missing.ts";
import type { Expression, Pipe, Template, TemplateNode } from "./template-syntax.ts";
import {
  describeKind,
  formatValue,
  isEmpty,
  isList,
  isMap,
  memberOf,
  revealAll,
  sortedKeys,
  type TemplateContext,
  type TemplateValue,
} from "./template-values.ts";

const stepsMax = 200_000;
const outputLengthMax = 1_048_576;

export interface Rendered {
  readonly text: string;
  /** True when a sensitive value was looked at on the way, also in a condition. */
  readonly sensitive: boolean;
  /** The texts of the sensitive values that were used, and of what was made from them. */
  readonly sensitiveTexts: readonly string[];
}

type Scope = Map<string, TemplateValue>;

/** Renders a parsed template; `values` is what `.nuon` and `.landfall` are. */
export function renderNodes(template: Template, values: TemplateValue): Rendered {
  const root: TemplateValue = { nuon: values, landfall: values };
  const secrets = new Set<string>();
  let looked = false;
  let everLooked = false;
  let steps = 0;
  let text = "";
  let offset = 0;

  const context: TemplateContext = {
    reveal(value) {
      if (!(value instanceof Sensitive)) return value;
      looked = true;
      everLooked = true;
      const plain = value.reveal();
      collectTexts(plain, secrets);
      return plain;
    },
    spend(count) {
      steps += count;
      if (steps > stepsMax) context.fail(`Expected at most ${stepsMax} steps, got more.`);
    },
    limit(length) {
      if (length > outputLengthMax) {
        context.fail(`Expected at most ${outputLengthMax} characters of text, got more.`);
      }
    },
    fail(reason) {
      throw new TemplateError(reason, template.text, offset);
    },
  };

  function renderList(nodes: readonly TemplateNode[], dot: TemplateValue, scopes: Scope[]): void {
    for (const node of nodes) {
      context.spend(1);
      if (node.kind === "text") emit(node.text);
      else if (node.kind === "output") {
        const value = evaluatePipe(node.pipe, dot, scopes);
        if (node.pipe.variables.length === 0) emit(formatValue(revealAll(value, context)));
      } else renderBlock(node, dot, scopes);
    }
  }

  function renderBlock(
    node: Extract<TemplateNode, { kind: "if" | "with" | "range" }>,
    dot: TemplateValue,
    outer: Scope[],
  ): void {
    const scopes = [...outer, new Map()];
    if (node.kind === "range") {
      renderRange(node, dot, scopes);
      return;
    }
    const value = evaluatePipe(node.pipe, dot, scopes);
    const chosen = !isEmpty(context.reveal(value));
    const inner = chosen && node.kind === "with" ? value : dot;
    renderList(chosen ? node.body : node.otherwise, inner, [...scopes, new Map()]);
  }

  function renderRange(
    node: Extract<TemplateNode, { kind: "if" | "with" | "range" }>,
    dot: TemplateValue,
    scopes: Scope[],
  ): void {
    const value = evaluate(node.pipe.expression, dot, scopes);
    const items = itemsOf(context.reveal(value), value instanceof Sensitive);
    const { variables, assigns } = node.pipe;
    for (const [key, item] of items) {
      context.spend(1);
      const [first, second] = variables;
      if (second !== undefined) setVariable(second, item, scopes, assigns);
      if (first !== undefined)
        setVariable(first, second === undefined ? item : key, scopes, assigns);
      renderList(node.body, item, [...scopes, new Map()]);
    }
    if (items.length === 0) renderList(node.otherwise, dot, [...scopes, new Map()]);
  }

  /** Pairs of key and item; what is inside a sensitive value is sensitive. */
  function itemsOf(value: Exclude<TemplateValue, Sensitive>, wrap: boolean) {
    const wrapped = (item: TemplateValue) =>
      wrap && !(item instanceof Sensitive) ? new Sensitive(revealAll(item, context)) : item;
    if (value === null) return [];
    if (isList(value)) {
      return value.map((item, at): [TemplateValue, TemplateValue] => [at, wrapped(item)]);
    }
    if (isMap(value)) {
      return sortedKeys(value).map((key): [TemplateValue, TemplateValue] => [
        key,
        wrapped(memberOf(value, key) ?? null),
      ]);
    }
    if (typeof value === "number" && Number.isInteger(value)) {
      context.spend(Math.max(0, value));
      return Array.from({ length: Math.max(0, value) }, (_, at): [TemplateValue, TemplateValue] => [
        at,
        wrapped(at),
      ]);
    }
    return context.fail(
      `Expected a list, a map or a number to range over, got ${describeKind(value)}.`,
    );
  }

  function emit(part: string): void {
    context.limit(text.length + part.length);
    text += part;
  }

  function evaluatePipe(pipe: Pipe, dot: TemplateValue, scopes: Scope[]): TemplateValue {
    const value = evaluate(pipe.expression, dot, scopes);
    const [name] = pipe.variables;
    if (name !== undefined) setVariable(name, value, scopes, pipe.assigns);
    return value;
  }

  function setVariable(
    name: string,
    value: TemplateValue,
    scopes: Scope[],
    assigns: boolean,
  ): void {
    const holder = assigns ? scopes.findLast((scope) => scope.has(name)) : scopes.at(-1);
    if (holder) holder.set(name, value);
    else context.fail(`Expected a variable that is set, got \`$${name}\`.`);
  }

  function evaluate(expression: Expression, dot: TemplateValue, scopes: Scope[]): TemplateValue {
    context.spend(1);
    offset = expression.offset;
    if (expression.kind === "literal") return expression.value;
    if (expression.kind === "dot") return walk(dot, expression.fields, dot === root ? "." : "");
    if (expression.kind === "variable") {
      if (expression.name === "") return walk(root, expression.fields, ".");
      const holder = scopes.findLast((scope) => scope.has(expression.name));
      return walk(holder?.get(expression.name) ?? null, expression.fields, "");
    }
    if (expression.kind === "group") {
      return walk(evaluate(expression.inner, dot, scopes), expression.fields, "");
    }
    return call(expression, dot, scopes);
  }

  /** Follows fields; `from` is `.` when the way begins at the root, so that an error can say more. */
  function walk(start: TemplateValue, fields: readonly string[], from: "." | ""): TemplateValue {
    let value = start;
    for (const [at, field] of fields.entries()) {
      const wrap = value instanceof Sensitive;
      const inside = wrap ? context.reveal(value) : value;
      const member = isMap(inside) ? memberOf(inside, field) : undefined;
      if (member === undefined) {
        if (wrap) context.fail(`Expected a value at \`.${field}\` of a sensitive value, got none.`);
        const known = isMap(inside) ? sortedKeys(inside) : null;
        return context.fail(explainMissing(fields.slice(0, at + 1), from === ".", known));
      }
      value =
        wrap && !(member instanceof Sensitive) ? new Sensitive(revealAll(member, context)) : member;
    }
    return value;
  }

  function call(
    expression: Extract<Expression, { kind: "call" }>,
    dot: TemplateValue,
    scopes: Scope[],
  ): TemplateValue {
    const known = templateFunctions.get(expression.name);
    if (!known) return context.fail(`Expected a function, got \`${expression.name}\`.`);
    const before = looked;
    looked = false;
    let result: TemplateValue;
    if (expression.name === "and" || expression.name === "or") {
      result = decide(expression, dot, scopes);
    } else {
      const args = expression.args.map((argument) => evaluate(argument, dot, scopes));
      offset = expression.offset;
      looked = false; // what an argument looked at is in the argument's own wrapping
      result = known.run(
        known.lazy ? args : args.map((value) => revealAll(value, context)),
        context,
      );
    }
    if (looked && !(result instanceof Sensitive))
      result = new Sensitive(revealAll(result, context));
    looked = before;
    return result;
  }

  /** `and` gives the first empty argument, `or` the first that is not; the rest is not evaluated. */
  function decide(
    expression: Extract<Expression, { kind: "call" }>,
    dot: TemplateValue,
    scopes: Scope[],
  ): TemplateValue {
    let result: TemplateValue = null;
    for (const argument of expression.args) {
      result = evaluate(argument, dot, scopes);
      if (isEmpty(context.reveal(result)) === (expression.name === "and")) break;
    }
    return result;
  }

  renderList(template.nodes, root, [new Map()]);
  return { text, sensitive: everLooked, sensitiveTexts: [...secrets] };
}

/** Texts and numbers of a sensitive value; `true` and the like would hide half of every log. */
function collectTexts(value: Json, into: Set<string>): void {
  if (typeof value === "string" && value.trim() !== "") into.add(value);
  else if (typeof value === "number") into.add(formatValue(value));
  else if (Array.isArray(value)) for (const item of value) collectTexts(item, into);
  else if (value !== null && typeof value === "object") {
    for (const item of Object.values(value)) collectTexts(item, into);
  }
}
