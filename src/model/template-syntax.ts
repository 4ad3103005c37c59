/**
 * The syntax tree of a template: what the parser gives and the renderer walks.
 *
 * A pipe `a | f b` is already the call `f b a`; trim markers are already applied to the text.
 */
import type { Json } from "./json.ts";

export type Expression =
  | { readonly kind: "literal"; readonly value: Json; readonly offset: number }
  | { readonly kind: "dot"; readonly fields: readonly string[]; readonly offset: number }
  | {
      readonly kind: "variable";
      /** Empty for `$`, the root. */
      readonly name: string;
      readonly fields: readonly string[];
      readonly offset: number;
    }
  | {
      readonly kind: "group";
      readonly inner: Expression;
      readonly fields: readonly string[];
      readonly offset: number;
    }
  | {
      readonly kind: "call";
      readonly name: string;
      readonly args: readonly Expression[];
      readonly offset: number;
    };

export interface Pipe {
  /** Variables that take the value: none, one, or two in a `range`. */
  readonly variables: readonly string[];
  /** True for `=`, which changes a variable of an outer block. */
  readonly assigns: boolean;
  readonly expression: Expression;
}

export type TemplateNode =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "output"; readonly pipe: Pipe }
  | {
      readonly kind: "if" | "with" | "range";
      readonly pipe: Pipe;
      readonly body: readonly TemplateNode[];
      readonly otherwise: readonly TemplateNode[];
    };

/** A path below `.nuon` or `.landfall` that the text of a template names. */
export interface Reference {
  readonly path: readonly string[];
  readonly offset: number;
  readonly line: number;
  readonly column: number;
  /** True when an absent value is no error, as with `index`. */
  readonly optional: boolean;
}

export interface Template {
  readonly text: string;
  readonly nodes: readonly TemplateNode[];
  readonly references: readonly Reference[];
}
