/**
 * Where a command writes and asks: the one door to the person at the other end.
 *
 * Invariant: colours and cursor movements go to a terminal only, never into a file or a pipe, and
 * never when NO_COLOR is set.
 */
import { createInterface } from "node:readline/promises";

export interface Terminal {
  /** True when standard output is a terminal on which lines may be re-drawn. */
  readonly interactive: boolean;
  readonly colours: boolean;
  /** Columns of the terminal; Infinity where there is none, so that nothing is cut. */
  width(): number;
  /** Rows of the terminal; Infinity where there is none. */
  height(): number;
  /** Writes to standard output: what was asked for. */
  write(text: string): void;
  /** Writes to standard error: progress, remarks, problems. */
  note(text: string): void;
  /** Asks a question; null when nobody is there to answer. */
  ask(question: string): Promise<string | null>;
}

export type Tone = "plain" | "dim" | "bold" | "good" | "bad" | "busy" | "accent";

const codes: Readonly<Record<Tone, string>> = {
  plain: "",
  dim: "2",
  bold: "1",
  good: "32",
  bad: "31",
  busy: "33",
  accent: "36",
};

/** The text in a tone, or as it is where there are no colours. */
export function paint(colours: boolean, tone: Tone, text: string): string {
  const code = codes[tone];
  return colours && code !== "" ? `\u001b[${code}m${text}\u001b[0m` : text;
}

/** The terminal of this process. `noColour` is NO_COLOR, which counts when it is not empty. */
export function createTerminal(
  streams: { stdin: NodeJS.ReadStream; stdout: NodeJS.WriteStream; stderr: NodeJS.WriteStream },
  settings: { noColour: string | undefined; dumb: boolean },
): Terminal {
  const { stdin, stdout, stderr } = streams;
  const interactive = stdout.isTTY === true && !settings.dumb;
  return {
    interactive,
    colours: interactive && (settings.noColour ?? "") === "",
    width: () => (stdout.isTTY ? stdout.columns || 80 : Number.POSITIVE_INFINITY),
    height: () => (stdout.isTTY ? stdout.rows || 24 : Number.POSITIVE_INFINITY),
    write: (text) => void stdout.write(text),
    note: (text) => void stderr.write(text),
    async ask(question) {
      if (stdin.isTTY !== true) return null;
      const asking = createInterface({ input: stdin, output: stderr });
      try {
        return await asking.question(question);
      } finally {
        asking.close();
      }
    },
  };
}
