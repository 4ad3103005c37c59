/**
 * `printf` with the verbs that app files use: %s %v %d %q %f %t %x and %%, with flags `-` and `0`,
 * width and precision.
 */
import type { Json } from "./json.ts";
import {
  describeKind,
  formatNumber,
  formatValue,
  type TemplateContext,
} from "./template-values.ts";

const verb = /%([-+0 #]*)(\d{1,4})?(?:\.(\d{1,3}))?([a-zA-Z%])/g;
const widthMax = 1000;

/** The form with every verb replaced by its argument; too many or too few arguments are refused. */
export function formatPrintf(
  form: string,
  args: readonly Json[],
  context: TemplateContext,
): string {
  let used = 0;
  let length = 0;
  const text = form.replace(
    verb,
    (_whole, flags: string, width: string, precision: string, letter: string) => {
      if (letter === "%") return "%";
      if (used >= args.length) {
        return context.fail("Expected an argument for every verb of `printf`, got fewer.");
      }
      const value = args[used++] ?? null;
      const formatted = formatVerb(
        letter,
        value,
        precision === undefined ? null : Number(precision),
        context,
      );
      const padded = pad(formatted, flags, Math.min(Number(width ?? 0), widthMax));
      length += padded.length;
      context.limit(length);
      return padded;
    },
  );
  if (used < args.length) {
    context.fail(`Expected ${used} arguments for this \`printf\`, got ${args.length}.`);
  }
  return text;
}

function formatVerb(
  letter: string,
  value: Json,
  precision: number | null,
  context: TemplateContext,
): string {
  switch (letter) {
    case "s":
    case "v":
      return precision === null ? formatValue(value) : formatValue(value).slice(0, precision);
    case "q":
      return JSON.stringify(formatValue(value));
    case "t":
      if (typeof value === "boolean") return String(value);
      break;
    case "d":
      if (typeof value === "number" && Number.isInteger(value)) return formatNumber(value);
      break;
    case "f":
      if (typeof value === "number") return value.toFixed(Math.min(precision ?? 6, 100));
      break;
    case "x":
      if (typeof value === "number" && Number.isInteger(value)) return BigInt(value).toString(16);
      if (typeof value === "string") return Buffer.from(value, "utf8").toString("hex");
      break;
  }
  return context.fail(`Expected a value that fits \`%${letter}\`, got ${describeKind(value)}.`);
}

function pad(text: string, flags: string, width: number): string {
  if (flags.includes("-")) return text.padEnd(width);
  return flags.includes("0") ? text.padStart(width, "0") : text.padStart(width);
}
