/** What a fault may use, and what is remembered of the faults of one round. */
import type { Product } from "./product.ts";
import type { Random } from "./random.ts";

/** What a fault did; `jobs` are the folders of jobs whose executors it killed. */
export interface Injection {
  readonly text: string;
  readonly jobs: readonly string[];
}

export interface Injury {
  readonly product: Product;
  readonly random: Random;
  /** Something to undo later; the round waits for it. */
  heal(work: () => Promise<void>): void;
  /** How often the job of this folder has lost its executor, in whatever epoch. */
  lossesOf(jobFolder: string): number;
  countLoss(jobFolder: string): void;
  cancelled(jobId: string): void;
}

export interface InjuryRecord {
  readonly injury: Injury;
  /** Folders (job and epoch) whose executors were killed. */
  readonly killed: ReadonlySet<string>;
  /** Jobs that somebody asked to cancel. */
  readonly cancelled: ReadonlySet<string>;
  /** Everything that was to be undone is. */
  healed(): Promise<void>;
}

/** A clean record for one round. */
export function createInjury(product: Product, random: Random): InjuryRecord {
  const losses = new Map<string, number>();
  const killed = new Set<string>();
  const cancelled = new Set<string>();
  const healing: Promise<void>[] = [];
  const jobOf = (jobFolder: string) => jobFolder.split(".")[0] ?? "";
  return {
    killed,
    cancelled,
    injury: {
      product,
      random,
      heal: (work) => void healing.push(work()),
      lossesOf: (jobFolder) => losses.get(jobOf(jobFolder)) ?? 0,
      countLoss(jobFolder) {
        losses.set(jobOf(jobFolder), (losses.get(jobOf(jobFolder)) ?? 0) + 1);
        killed.add(jobFolder);
      },
      cancelled: (jobId) => void cancelled.add(jobId),
    },
    async healed() {
      await Promise.all(healing);
    },
  };
}
