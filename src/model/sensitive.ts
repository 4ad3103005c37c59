/**
 * A value that must not leave the install: an output marked sensitive, a sealed input.
 *
 * It prints as `***` wherever it is printed by accident (text, JSON, `console.log`); only code that
 * asks by name gets the value.
 */
import type { Json } from "./json.ts";

const mask = "***";

/** Wraps a JSON value so that it cannot be printed by accident. */
export class Sensitive {
  readonly #value: Json;

  constructor(value: Json) {
    this.#value = value;
  }

  /** The value itself; whoever calls this must keep the result from logs, events and errors. */
  reveal(): Json {
    return this.#value;
  }

  toString(): string {
    return mask;
  }

  toJSON(): string {
    return mask;
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return mask;
  }
}
