/**
 * The launcher: how one executor is started, found again, asked to stop and ended. What it does is
 * known from the job's folder alone, so a restarted agent finds what an earlier one launched.
 *
 * Invariant: after `end` returns, no process of that job's tree is alive, and after `endOthers` none of
 * any executor of that component, whoever launched it; if that cannot be proved, they throw. Only with
 * this proof may a newer epoch start.
 */

/** `running`: still alive. An exit code: it ended. `gone`: no trace of it, and nothing recorded how it ended. */
export type Found = "running" | "gone" | { readonly exitCode: number };

/** What is launched, and what it may see and write. */
export interface Launch {
  readonly command: readonly string[];
  /** The whole environment, but for the launcher's own marks. */
  readonly environment: { readonly [name: string]: string };
  /** What it may write to besides its own folder, where the launcher can keep it from others. */
  readonly writableFolders: readonly string[];
  /** What the job changes, as `<install>/<component>`; null where two may run side by side. */
  readonly component: string | null;
}

/** How others are ended, and by whom. */
export interface Others {
  /** Of the executor that is to start. */
  readonly generation: number;
  readonly graceMs: number;
}

export interface Launcher {
  /** Starts the executor detached, the folder as its last argument; returns once it is recorded. */
  launch(folder: string, launch: Launch): Promise<void>;
  find(folder: string): Promise<Found>;
  /** Asks the executor itself (SIGTERM), and nothing else of its tree; nothing happens when it is gone. */
  ask(folder: string): Promise<void>;
  /** Kills the whole tree and waits until it is gone. */
  end(folder: string): Promise<void>;
  /**
   * Ends every executor of this component, also those that another agent launched from another folder:
   * asks, waits for `graceMs`, kills. Gives the names of the jobs that it ended. One of a newer
   * generation is not touched: whoever asks is the one that was replaced, and gets a `Fault`.
   */
  endOthers(component: string, others: Others): Promise<string[]>;
  /** Runs `act` while no other agent proves this component clear or starts an executor of it. */
  alone<T>(component: string, act: () => Promise<T>): Promise<T>;
}
