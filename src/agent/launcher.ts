/**
 * The launcher: how one executor is started, found again, asked to stop and ended. What it does is
 * known from the job's folder alone, so a restarted agent finds what an earlier one launched.
 *
 * Invariant: after `end` returns, no process of that job's tree is alive; if that cannot be proved, it
 * throws. Only with this proof may a newer epoch start.
 */

/** `running`: still alive. An exit code: it ended. `gone`: no trace of it, and nothing recorded how it ended. */
export type Found = "running" | "gone" | { readonly exitCode: number };

export interface Launcher {
  /**
   * Starts the executor detached, with this environment and no other; returns once it is recorded.
   * Besides its own folder it may write to `writableFolders`, where the launcher can keep it from others.
   */
  launch(
    folder: string,
    command: readonly string[],
    environment: { readonly [name: string]: string },
    writableFolders: readonly string[],
  ): Promise<void>;
  find(folder: string): Promise<Found>;
  /** Asks the executor itself (SIGTERM), and nothing else of its tree; nothing happens when it is gone. */
  ask(folder: string): Promise<void>;
  /** Kills the whole tree and waits until it is gone. */
  end(folder: string): Promise<void>;
}
