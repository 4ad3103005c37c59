/**
 * The functions that templates may call on any value: logic, comparison, lists and maps. Those on
 * text are in `template-text-functions.ts`; this file joins both into one table.
 *
 * A function gets its arguments unwrapped at every depth, unless it is `lazy`: then it may pass a
 * sensitive value on without looking at it.
 */
import { textFunctions } from "./template-text-functions.ts";
import {
  describeKind,
  isEmpty,
  isList,
  isMap,
  memberOf,
  sortedKeys,
  spendText,
  type TemplateContext,
  type TemplateFunction,
  type TemplateMap,
  type TemplateValue,
} from "./template-values.ts";

const many = 1000;
const lazy = true;

const valueFunctions: Record<string, TemplateFunction> = {
  // `and` and `or` stop early, so the renderer runs them itself; here is only how many arguments they take.
  and: { min: 1, max: many, lazy, run: ([first]) => first ?? null },
  or: { min: 1, max: many, lazy, run: ([first]) => first ?? null },
  not: { min: 1, max: 1, lazy, run: ([value = null], context) => isEmpty(context.reveal(value)) },
  eq: {
    min: 2,
    max: many,
    run: ([first, ...rest], context) => rest.some((other) => isEqual(first, other, context)),
  },
  ne: { min: 2, max: 2, run: ([a, b], context) => !isEqual(a, b, context) },
  lt: { min: 2, max: 2, run: ([a, b], context) => compare(a, b, context) < 0 },
  le: { min: 2, max: 2, run: ([a, b], context) => compare(a, b, context) <= 0 },
  gt: { min: 2, max: 2, run: ([a, b], context) => compare(a, b, context) > 0 },
  ge: { min: 2, max: 2, run: ([a, b], context) => compare(a, b, context) >= 0 },
  index: { min: 1, max: many, lazy, run: readIndex },
  len: { min: 1, max: 1, lazy, run: ([value = null], context) => lengthOf(value, context) },
  default: {
    min: 2,
    max: 2,
    lazy,
    run: ([fallback = null, value = null], context) =>
      isEmpty(context.reveal(value)) ? fallback : value,
  },
  coalesce: {
    min: 1,
    max: many,
    lazy,
    run: (args, context) => args.find((value) => !isEmpty(context.reveal(value))) ?? null,
  },
  empty: { min: 1, max: 1, lazy, run: ([value = null], context) => isEmpty(context.reveal(value)) },
  ternary: {
    min: 3,
    max: 3,
    lazy,
    run: ([yes = null, no = null, condition = null], context) =>
      isEmpty(context.reveal(condition)) ? no : yes,
  },
  dig: { min: 3, max: many, lazy, run: dig },
  dict: { min: 0, max: many, lazy, run: makeMap },
  list: { min: 0, max: many, lazy, run: (args) => [...args] },
  values: { min: 1, max: 1, lazy, run: ([value = null], context) => readValues(value, context) },
  keys: {
    min: 1,
    max: many,
    lazy,
    run: (args, context) => args.flatMap((value) => sortedKeys(expectMap(value, context))),
  },
};

/** Every function by its name. */
export const templateFunctions: ReadonlyMap<string, TemplateFunction> = new Map(
  Object.entries({ ...valueFunctions, ...textFunctions }),
);

function isEqual(
  a: TemplateValue = null,
  b: TemplateValue = null,
  context: TemplateContext,
): boolean {
  const [left, right] = [context.reveal(a), context.reveal(b)];
  if (left === null || right === null) return left === right;
  if (typeof left === "object" || typeof right === "object") {
    return context.fail(
      `Expected text, numbers or true and false to compare, got ${describeKind(left)} and ${describeKind(right)}.`,
    );
  }
  if (typeof left !== typeof right) failMixed(left, right, context);
  return left === right;
}

function compare(
  a: TemplateValue = null,
  b: TemplateValue = null,
  context: TemplateContext,
): number {
  const [left, right] = [context.reveal(a), context.reveal(b)];
  if (typeof left === "number" && typeof right === "number") return left - right;
  if (typeof left === "string" && typeof right === "string") {
    return left < right ? -1 : left > right ? 1 : 0;
  }
  return failMixed(left, right, context);
}

function failMixed(
  left: Parameters<typeof describeKind>[0],
  right: Parameters<typeof describeKind>[0],
  context: TemplateContext,
): never {
  return context.fail(
    `Expected two values of one kind to compare, got ${describeKind(left)} and ${describeKind(right)}. Inputs are always text: compare with text, or use \`int\`.`,
  );
}

function readIndex(
  [collection = null, ...keys]: readonly TemplateValue[],
  context: TemplateContext,
) {
  let value = collection;
  for (const wrapped of keys) {
    const inside = context.reveal(value);
    const key = context.reveal(wrapped);
    if (isMap(inside) && typeof key === "string") value = memberOf(inside, key) ?? null;
    else if (isList(inside) && typeof key === "number") {
      const item = inside[key];
      if (item === undefined) {
        return context.fail(`Expected an index below ${inside.length}, got another.`);
      }
      value = item;
    } else if (inside === null) return null;
    else {
      return context.fail(
        `Expected a map and text, or a list and a number, got ${describeKind(inside)} and ${describeKind(key)}.`,
      );
    }
  }
  return value;
}

/** `dig "a" "b" fallback map`: the member at that path, or the fallback. */
function dig(args: readonly TemplateValue[], context: TemplateContext): TemplateValue {
  const fallback = args.at(-2) ?? null;
  let value: TemplateValue = args.at(-1) ?? null;
  for (const wrapped of args.slice(0, -2)) {
    const inside = context.reveal(value);
    const key = context.reveal(wrapped);
    if (typeof key !== "string")
      return context.fail(`Expected names of keys, got ${describeKind(key)}.`);
    const member = isMap(inside) ? memberOf(inside, key) : undefined;
    if (member === undefined) return fallback;
    value = member;
  }
  return value;
}

function makeMap(args: readonly TemplateValue[], context: TemplateContext): TemplateMap {
  const entries: [string, TemplateValue][] = [];
  for (let at = 0; at < args.length; at += 2) {
    const key = context.reveal(args[at] ?? null);
    if (typeof key !== "string") context.fail(`Expected text as a key, got ${describeKind(key)}.`);
    else entries.push([key, args[at + 1] ?? ""]);
  }
  return Object.fromEntries(entries);
}

function readValues(value: TemplateValue, context: TemplateContext): TemplateValue[] {
  const map = expectMap(value, context);
  return sortedKeys(map).map((key) => map[key] ?? null);
}

function expectMap(value: TemplateValue, context: TemplateContext): TemplateMap {
  const inside = context.reveal(value);
  return isMap(inside) ? inside : context.fail(`Expected a map, got ${describeKind(inside)}.`);
}

function lengthOf(value: TemplateValue, context: TemplateContext): number {
  const inside = context.reveal(value);
  if (typeof inside === "string") {
    spendText(inside, context);
    return new TextEncoder().encode(inside).length;
  }
  if (isList(inside)) return inside.length;
  if (isMap(inside)) return Object.keys(inside).length;
  return context.fail(`Expected text, a list or a map, got ${describeKind(inside)}.`);
}
