/**
 * What every command works with: made once in `bin/command-line.ts`, which alone reads the environment
 * and ends the process.
 */
import type { Terminal } from "./terminal.ts";

/** Command lines of the programs, ready to be started. */
export interface Programs {
  readonly server: readonly string[];
  readonly agent: readonly string[];
  readonly registry: readonly string[];
  readonly supervisor: readonly string[];
  readonly executor: readonly string[];
  /** Folders and files that an executor must be able to read, bundles included. */
  readonly paths: readonly string[];
}

export interface CliContext {
  readonly terminal: Terminal;
  /** The folder that relative paths are relative to. */
  readonly cwd: string;
  /** The repository: where examples and sources are. */
  readonly root: string;
  readonly version: string;
  /** DATABASE_URL: a PostgreSQL to be used in place of our own. */
  readonly databaseUrl: string | undefined;
  /** What programs get of the environment: PATH, HOME, LANG, nothing else. */
  readonly environment: Readonly<Record<string, string>>;
  readonly now: () => Date;
  /**
   * Bundles the programs where that is needed, and says how to start them. `ownFolder` is where they go
   * when the checkout belongs to somebody else.
   */
  preparePrograms(ownFolder?: string): Promise<Programs>;
  /** Starts a program in the foreground and gives its exit code. */
  runForeground(command: readonly string[]): Promise<number>;
  /** Hears of Ctrl-C and of the wish to end; the returned function stops hearing. */
  onStop(hear: (signal: "SIGINT" | "SIGTERM") => void): () => void;
  /** Takes the exit code of the command that ran. */
  exitWith(code: number): void;
}
