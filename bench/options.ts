/** How large a measurement is. The defaults are the sizes that the aims speak of. */
import { parseArgs } from "node:util";

export interface BenchOptions {
  readonly agents: number;
  readonly jobs: number;
  readonly installs: number;
  readonly finished: number;
  /** A folder for CPU profiles of the server; null: none. */
  readonly profile: string | null;
  /** Tells which statements the server ran. */
  readonly statements: boolean;
}

/** Reads `--agents N --jobs N --installs N --finished N --profile FOLDER --statements`, and the names of measurements. */
export function readOptions(args: readonly string[]): { names: string[]; options: BenchOptions } {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      agents: { type: "string", default: "10000" },
      jobs: { type: "string", default: "20000" },
      installs: { type: "string", default: "10000" },
      finished: { type: "string", default: "1000000" },
      profile: { type: "string" },
      statements: { type: "boolean", default: false },
    },
  });
  return {
    names: positionals,
    options: {
      agents: toCount("agents", values.agents),
      jobs: toCount("jobs", values.jobs),
      installs: toCount("installs", values.installs),
      finished: toCount("finished", values.finished),
      profile: values.profile ?? null,
      statements: values.statements,
    },
  };
}

function toCount(name: string, text: string): number {
  const count = Number(text);
  if (Number.isInteger(count) && count > 0) return count;
  throw new Error(`Expected a positive number after \`--${name}\`, got \`${text}\`.`);
}
