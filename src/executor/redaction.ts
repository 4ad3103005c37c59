/**
 * Redaction: what is known to be sensitive never leaves the executor in any text, in clear or in the
 * forms in which programs like to print it (JSON, base64, percent-encoded, line by line).
 *
 * Values of four characters and more are hidden anywhere; shorter ones only as whole words, because
 * hiding every `a` would hide everything.
 */
import type { Json, JsonObject } from "../model/json.ts";

export const mask = "***";
const anywhereLengthMin = 4;
const base64LengthMin = 8;

export interface Redactor {
  /** Adds a text, or every text and number inside a value. */
  add(value: Json): void;
  redact(text: string): string;
  /** True when the value holds something sensitive. */
  isTainted(value: Json): boolean;
}

/** A redactor that knows nothing yet. */
export function createRedactor(): Redactor {
  const forms = new Set<string>();
  let pattern: RegExp | null = null;

  function redact(text: string): string {
    if (forms.size === 0) return text;
    pattern ??= compile(forms);
    return text.replace(pattern, mask);
  }

  return {
    add(value) {
      for (const text of textsOf(value)) {
        for (const form of formsOf(text)) {
          if (forms.has(form)) continue;
          forms.add(form);
          pattern = null;
        }
      }
    },
    redact,
    isTainted: (value) => textsOf(value).some((text) => redact(text) !== text),
  };
}

/** Every text and number at any depth. A boolean or null tells nobody anything. */
function textsOf(value: Json): string[] {
  if (typeof value === "string") return [value];
  if (typeof value === "number") return [String(value)];
  if (value === null || typeof value === "boolean") return [];
  if (Array.isArray(value)) return value.flatMap((item: Json) => textsOf(item));
  return Object.values(value as JsonObject).flatMap(textsOf);
}

function formsOf(text: string): string[] {
  const whole = text.trim();
  if (whole === "" || whole === mask) return [];
  // Of a text with several lines, each line; short ones (braces, blanks) would hide too much.
  const lines = whole.includes("\n")
    ? whole
        .split(/\r?\n/)
        .map((line) => line.trim())
        .filter((line) => line.length >= anywhereLengthMin)
    : [];
  return [whole, ...lines].flatMap((part) => [part, ...escapedForms(part)]);
}

function escapedForms(text: string): string[] {
  if (text.length < anywhereLengthMin) return [];
  const forms = [JSON.stringify(text).slice(1, -1), encodeURIComponent(text.toWellFormed())];
  if (text.length >= base64LengthMin) forms.push(...base64Forms(Buffer.from(text)));
  return forms.filter((form) => form !== text);
}

/**
 * Inside a longer text (`user:password`) a value stands at any of three places relative to base64's
 * groups of three bytes; what its neighbours decide (the first and last characters) is left out.
 */
function base64Forms(bytes: Buffer): string[] {
  return [0, 1, 2].flatMap((offset) => {
    const skipped = offset === 0 ? 0 : offset + 1;
    const encoded = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64");
    const padded = (offset + bytes.byteLength) % 3;
    const kept = encoded.replace(/=+$/, "").slice(skipped, padded === 0 ? undefined : -1);
    return [kept, kept.replaceAll("+", "-").replaceAll("/", "_")];
  });
}

function compile(forms: ReadonlySet<string>): RegExp {
  const longestFirst = [...forms].sort((a, b) => b.length - a.length);
  const parts = longestFirst.map((form) => {
    const literal = form.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    return form.length >= anywhereLengthMin
      ? literal
      : `(?<![\\p{L}\\p{N}_])${literal}(?![\\p{L}\\p{N}_])`;
  });
  return new RegExp(parts.join("|"), "gu");
}
