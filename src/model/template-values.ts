/**
 * The values that templates see, and how they are read: bounded, and with every look at a sensitive
 * value noticed.
 *
 * Invariant: a sensitive value is unwrapped by `reveal` only, and `reveal` tells the watcher. So what
 * a text was made of is known, whatever way the value took through functions and variables.
 */
import type { Json } from "./json.ts";
import { Sensitive } from "./sensitive.ts";

export type TemplateValue =
  | Json
  | Sensitive
  | readonly TemplateValue[]
  | { readonly [key: string]: TemplateValue };

export type TemplateMap = { readonly [key: string]: TemplateValue };

/** What a function may do besides computing: look at sensitive values, spend steps, refuse. */
export interface TemplateContext {
  /** The value without its wrapping; one level only. */
  reveal(value: TemplateValue): Exclude<TemplateValue, Sensitive>;
  /** Counts work, and refuses when there was too much of it. */
  spend(steps: number): void;
  /** Refuses text that would be too long. */
  limit(length: number): void;
  fail(reason: string): never;
}

/** A function of templates and how many arguments it takes. */
export interface TemplateFunction {
  readonly min: number;
  readonly max: number;
  readonly lazy?: boolean;
  run(args: readonly TemplateValue[], context: TemplateContext): TemplateValue;
}

const depthMax = 64;
/** So many letters of a text count as one step. */
const lettersPerStep = 256;

/** The value with nothing wrapped in it at any depth. */
export function revealAll(value: TemplateValue, context: TemplateContext, depth = 0): Json {
  if (depth > depthMax) context.fail(`Expected at most ${depthMax} nested values, got more.`);
  context.spend(1);
  const plain = context.reveal(value);
  if (isList(plain)) return plain.map((item) => revealAll(item, context, depth + 1));
  if (isMap(plain)) {
    const entries = Object.entries(plain);
    return Object.fromEntries(
      entries.map(([key, item]) => [key, revealAll(item, context, depth + 1)]),
    );
  }
  if (typeof plain === "string") spendText(plain, context);
  return plain;
}

/** Counts the work on a text by its length, so that few steps cannot mean much work. */
export function spendText(text: string, context: TemplateContext): void {
  context.spend(Math.ceil(text.length / lettersPerStep));
}

/** True for a map; lists and wrapped values are none. */
export function isMap(value: TemplateValue): value is TemplateMap {
  return (
    value !== null &&
    typeof value === "object" &&
    !Array.isArray(value) &&
    !(value instanceof Sensitive)
  );
}

/** True for a list. */
export function isList(value: TemplateValue): value is readonly TemplateValue[] {
  return Array.isArray(value);
}

/** The member of this name, never one that every object inherits. */
export function memberOf(map: TemplateMap, key: string): TemplateValue | undefined {
  return Object.hasOwn(map, key) ? map[key] : undefined;
}

/** The keys of a map in the order in which templates see them. */
export function sortedKeys(map: TemplateMap): string[] {
  return Object.keys(map).sort();
}

/** How a value appears in text: integers plainly, lists as `[a b]`, maps as `map[k:v]`, nil as nothing. */
export function formatValue(value: Json): string {
  if (value === null) return "";
  if (typeof value === "string") return value;
  if (typeof value === "number") return formatNumber(value);
  if (typeof value === "boolean") return String(value);
  if (Array.isArray(value)) return `[${value.map(formatValue).join(" ")}]`;
  const map = value as { readonly [key: string]: Json };
  const members = sortedKeys(map).map((key) => `${key}:${formatValue(map[key] ?? null)}`);
  return `map[${members.join(" ")}]`;
}

/** 12345678 is `12345678`, never `1.2345678e+07`. */
export function formatNumber(value: number): string {
  return Number.isInteger(value) ? BigInt(value).toString() : String(value);
}

/** What templates count as empty: nil, false, 0, and text, lists and maps without content. */
export function isEmpty(value: Exclude<TemplateValue, Sensitive>): boolean {
  if (isList(value)) return value.length === 0;
  if (isMap(value)) return Object.keys(value).length === 0;
  return value === null || value === false || value === 0 || value === "";
}

/** What kind of value this is, in a person's words, without saying which. */
export function describeKind(value: Exclude<TemplateValue, Sensitive>): string {
  if (value === null) return "nil";
  if (isList(value)) return "a list";
  if (isMap(value)) return "a map";
  return typeof value === "string" ? "text" : `a ${typeof value}`;
}
