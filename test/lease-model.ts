/**
 * The model check's model: the server's rules (`stepJob`, `judgeJournal`) and the agent's (`decideOffer`)
 * as they are, and around them everything that may go wrong, at every step: connections that are cut,
 * frames that come late, agents and executors that die, leases that lapse, a person who cancels or
 * replaces the agent, a database that is restored from a back-up.
 *
 * What a replaced agent on another machine can break: two executors may be alive at once, one on each
 * machine, when a person replaces an agent that is only cut off. Nothing that speaks to the server can
 * prevent that; the model holds each machine by itself to the invariants, and both to the epochs.
 */
import { isFinished } from "../src/model/job.ts";
import { agentMoves } from "./lease-agent.ts";
import { copyWorld, keyOf } from "./lease-key.ts";
import { serverMoves } from "./lease-server.ts";
import { createWorld, type Setup, type World } from "./lease-world.ts";
import type { Model } from "./state-explorer.ts";

/** The model of one setup. */
export function createLeaseModel(setup: Setup): Model<World> {
  return {
    initial: createWorld(),
    *moves(world) {
      if (isOver(world, setup)) return;
      yield* serverMoves(world, setup);
      yield* agentMoves(world, setup);
    },
    // Beyond the last offer the model does not look.
    isGood: ({ db }) => isFinished(db.job.state) || db.job.epoch.n >= setup.offersMax,
    copy: copyWorld,
    keyOf,
  };
}

/** Nothing can change any more but what is left to be tidied up. */
function isOver(world: World, { faults }: Setup): boolean {
  const isFinal = isFinished(world.db.job.state) && !(faults.restore && !world.restored);
  if (!isFinal) return false;
  const isStarting = Object.values(world.folders).some(({ rows }) =>
    rows.some((row) => row.phase === "starting" || row.phase === "cleared"),
  );
  const isOffered = Object.values(world.agents).some(
    ({ link, late }) => late.length > 0 || link?.down.some((frame) => frame.t === "offer"),
  );
  return !isStarting && !isOffered && world.executors.every((each) => !each.alive);
}
