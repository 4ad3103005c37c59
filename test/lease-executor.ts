/** The executors' part of the model: how the launcher starts one, and what it does by itself. */
import { hear } from "./lease-server.ts";
import {
  type Code,
  executorsOf,
  folderOf,
  isOlder,
  type Name,
  type Setup,
  tidy,
  type World,
} from "./lease-world.ts";
import type { Move } from "./state-explorer.ts";

/** Everything that executors may do now. */
export function* executorMoves(world: World, setup: Setup): Generator<Move<World>> {
  const { place, faults } = setup;
  for (const [index, { e, by, alive, applied, end }] of world.executors.entries()) {
    if (!alive) continue;
    const act = (label: string, isFault: boolean, change: Partial<World["executors"][number]>) =>
      move(`executor ${label}: ${e} of ${by}`, isFault, (draft) => {
        Object.assign(draft.executors[index] ?? {}, change);
        if (change.end === "ok") draft.ghost.succeeded = true;
        tidy(draft, place);
      });
    yield act("dies", true, { alive: false });
    if (end !== null) yield act("exits", false, { alive: false });
    else if (applied) yield act("writes ok", false, { end: "ok", alive: faults.dawdle });
    else {
      yield move(`executor applies: ${e} of ${by}`, false, (draft) => apply(draft, setup, index));
      yield act("writes fail", true, { end: "fail", alive: faults.dawdle });
    }
  }
}

/** The fence first, then the cloud. */
function apply(draft: World, { rules, place }: Setup, index: number): string | undefined {
  const executor = draft.executors[index];
  if (!executor) return undefined;
  const { e } = executor;
  if (rules.fence && isOlder(e, draft.fence)) {
    Object.assign(executor, { alive: false, end: "fail" });
    tidy(draft, place);
    return undefined;
  }
  const { applied } = draft.ghost;
  executor.applied = true;
  draft.fence = e;
  draft.ghost.applied = e;
  if (applied === e) return `Epoch ${e} was applied twice.`;
  return isOlder(e, applied) ? `Epoch ${e} was applied after ${applied}.` : undefined;
}

/** The launcher ends every other executor of the component that it can see. */
export function prove(draft: World, { place, rules }: Setup, name: Name): void {
  if (!rules.launcherProof) return;
  for (const each of executorsOf(draft, name, place)) each.alive = false;
}

/** The launcher starts an executor, once it has proved that no other one of the component is alive. */
export function launch(draft: World, setup: Setup, name: Name, e: Code): string | undefined {
  const { place, rules } = setup;
  const folder = folderOf(draft, name, place);
  const { link } = draft.agents[name];
  if (rules.proofIsAtomic) prove(draft, setup, name);
  const broken = judgeLaunch(draft, setup, name, e);
  const row = folder.rows.find((each) => each.e === e);
  if (row) row.phase = "launched";
  draft.executors.push({ e, by: name, alive: true, applied: false, end: null });
  tidy(draft, place);
  draft.ghost.started.push(e);
  if (broken || !link?.welcomed) return broken;
  link.kept.push(e);
  return hear(draft, setup, name, { t: "accepted", e });
}

function judgeLaunch(draft: World, { place }: Setup, name: Name, e: Code): string | undefined {
  const { acked, started, succeeded } = draft.ghost;
  const alive = executorsOf(draft, name, place).find((each) => each.alive);
  if (alive) return `Executors of ${alive.e} and ${e} are alive at once.`;
  if (started.includes(e)) return `Epoch ${e} was launched twice.`;
  // What only A's folder tells is lost to a B that works elsewhere.
  if (draft.replaced && place !== "same folder") return undefined;
  if (acked) return `${e} started, though the outcome of ${acked.e} was acknowledged.`;
  return succeeded ? `${e} started, though an earlier executor had succeeded.` : undefined;
}

/** A move of the model. */
export function move(label: string, fault: boolean, apply: (draft: World) => unknown): Move<World> {
  return {
    label,
    fault,
    apply(draft) {
      const broken = apply(draft);
      return typeof broken === "string" ? broken : undefined;
    },
  };
}
