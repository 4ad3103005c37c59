/**
 * Says, for a path that leads nowhere, where its value should have come from. Names keys, never values.
 */
import { didYouMean } from "./nearest.ts";

const shownMax = 12;

/**
 * The sentence for a missing member.
 * `fields` is the path up to the missing name; `known` the names that exist there, or null when what
 * stands before it is no map.
 */
export function explainMissing(
  fields: readonly string[],
  fromRoot: boolean,
  known: readonly string[] | null,
): string {
  const path = `.${fields.join(".")}`;
  const name = fields.at(-1) ?? "";
  if (known === null) {
    return `Expected a map before \`.${name}\` in \`${path}\`, got a single value or nothing.`;
  }
  const hint = didYouMean(name, known);
  const origin = fromRoot ? originOf(fields) : null;
  return `Expected a value at \`${path}\`, got none. ${origin ?? "There is"} ${listNames(known)}.${hint}`;
}

/** Whose business the missing value is, ending so that a list of names can follow. */
function originOf(fields: readonly string[]): string | null {
  const [, section, name, member] = fields;
  if (section === "components" && fields.length === 3) {
    return `Component \`${name}\` is not among this component's dependencies; there is`;
  }
  if (section === "components" && member === "outputs" && fields.length === 5) {
    return `Component \`${name}\` gives its outputs when it is deployed; it gave`;
  }
  const input =
    (section === "inputs" && name === "inputs" && fields.length === 4) ||
    (section === "install" && name === "inputs" && fields.length === 4);
  return input ? "Inputs are declared in `inputs.toml` and set per install; there is" : null;
}

function listNames(names: readonly string[]): string {
  if (names.length === 0) return "nothing";
  const shown = names.slice(0, shownMax).map((name) => `\`${name}\``);
  return shown.join(", ") + (names.length > shownMax ? ", …" : "");
}
