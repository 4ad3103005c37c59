/** The restored server's part of the model: when an agent must tell its part, and what is put back. */
import { isFinished } from "../src/model/job.ts";
import {
  type Code,
  codeOf,
  type End,
  epochOf,
  isOlder,
  type Name,
  putJob,
  type Setup,
  type Up,
  type World,
} from "./lease-world.ts";

/** True when the agent remembers what the server does not: then the install is held, and the generation raised. */
export function mustRecall(
  draft: World,
  { rules }: Setup,
  hello: Extract<Up, { t: "hello" }>,
): boolean {
  const { db } = draft;
  const isLost = draft.restored && hello.beyond;
  const newest = codeOf(db.job.epoch);
  const knowsMore = hello.journal.some((e) => isOlder(newest, e));
  if ((isLost || knowsMore) && !db.held) {
    db.held = true;
    draft.ghost.noticed = true;
    if (rules.generationsRaised) db.generation += 1;
  }
  return isLost || db.held;
}

/** Puts back what the agent told, ends the hold, and lets the agent connect again as any other. */
export function putBack(
  draft: World,
  setup: Setup,
  name: Name,
  { tries, generation }: Extract<Up, { t: "recalled" }>,
): string | undefined {
  const { db } = draft;
  const { rules } = setup;
  if (!draft.agents[name].link?.recalling) return undefined;
  const newest = tries.reduce((a, b) => (isOlder(a.e, b.e) ? b : a), { e: 0, end: null } as {
    e: Code;
    end: End | null;
  });
  let broken: string | undefined;
  const isKnown = rules.recallGuard && isOlder(newest.e, codeOf(db.job.epoch));
  if (newest.e > 0 && !isFinished(db.job.state) && !isKnown) {
    const epoch = epochOf(newest.e);
    broken = putJob(
      draft,
      setup,
      newest.end === null
        ? { ...db.job, epoch, begun: true, state: "running", agent: name }
        : { ...db.job, epoch, begun: true, agent: null, ...endedAs(newest.end) },
    );
  }
  if (rules.generationsRaised && db.generation <= generation) db.generation = generation + 1;
  db.held = false;
  draft.agents[name].link = null;
  return broken;
}

function endedAs(end: End) {
  const { status, code } = outcomeOf(end);
  return { state: status, code };
}

/** An outcome as the rules know it. */
export function outcomeOf(end: End) {
  if (end === "ok") return { status: "succeeded", code: null } as const;
  if (end === "fail") return { status: "failed", code: "unavailable" } as const;
  return { status: "cancelled", code: "cancelled" } as const;
}
