/**
 * A restored server asks an agent what it did, page by page; nothing is taken before the last page is in.
 *
 *   welcome ──recall──> telling ──recalled (more)──┐
 *                          ^───────────────────────┘──recalled (last)──> taken; it connects again as any other
 */
import type { AgentFrame } from "../../protocol/frames.ts";
import type { ServerContext } from "../context.ts";
import { type Teller, type ToldTry, takeRecalled } from "../recall.ts";

const recalledMax = 10_000;

type Recalled = Extract<AgentFrame, { type: "recalled" }>;

export interface RecallSession {
  /** Takes one page: `taken` after the last one, `more` before, `refused` when it is too much. */
  take(page: Recalled): Promise<"more" | "taken" | "refused">;
}

/** Begins it; the caller sends `recall`. */
export function beginRecall(context: ServerContext, teller: Teller): RecallSession {
  const told: ToldTry[] = [];
  return {
    async take({ jobs, more }) {
      told.push(...jobs);
      if (told.length > recalledMax) return "refused";
      if (more) return "more";
      await takeRecalled(context, teller, told);
      return "taken";
    },
  };
}
