/** Reads the table of promises: each row, and the tests or commands that show it. */
import { readFileSync } from "node:fs";
import { join } from "node:path";

export interface Promised {
  readonly id: string;
  readonly text: string;
  /** Tests that show it. */
  readonly tests: readonly { readonly file: string; readonly name: string }[];
  readonly commands: readonly string[];
  /** Why this machine cannot show it, where that is so. */
  readonly notShown: string | null;
}

export const projectRoot = join(import.meta.dirname, "..");

/** All rows of `docs/promises.md`. */
export function readPromises(): Promised[] {
  const text = readFileSync(join(projectRoot, "docs/promises.md"), "utf8");
  return [...text.matchAll(/^\| ([A-Z]\d+[a-z]?) \| (.*?) \| ?(.*?) ?\|$/gm)].map(
    ([, id = "", promise = "", shown = ""]) => ({
      id,
      text: promise,
      tests: [...shown.matchAll(/`([^`]+\.test\.ts)` › (.+?)(?=<br>|$)/g)].map(
        ([, file = "", name = ""]) => ({ file, name: name.trim() }),
      ),
      commands: [...shown.matchAll(/run: `([^`]+)`/g)].map(([, command = ""]) => command),
      notShown: /not shown: (.+?)(?=<br>|$)/.exec(shown)?.[1] ?? null,
    }),
  );
}

/** Rows that nothing shows yet, as lines for people. */
export function notYetRows(): string[] {
  return readPromises()
    .filter(({ tests, commands, notShown }) => !notShown && tests.length + commands.length === 0)
    .map(({ id, text }) => `${id}: ${text}`);
}
