/** The agents' part of the model; what an agent makes of an offer is the real `decideOffer`. */
import { decideOffer, type OfferDecision, type VerifiedOffer } from "../src/agent/offer.ts";
import { isFinished } from "../src/model/job.ts";
import type { Digest } from "../src/model/json.ts";
import { executorMoves, launch, move, prove } from "./lease-executor.ts";
import { frameKey } from "./lease-key.ts";
import { hear } from "./lease-server.ts";
import {
  type Code,
  codeOf,
  type Down,
  epochOf,
  executorOf,
  type Folder,
  folderOf,
  isOlder,
  jobId,
  type Name,
  names,
  type Row,
  type Setup,
  tidy,
  type Up,
  type World,
} from "./lease-world.ts";
import type { Move } from "./state-explorer.ts";

const now = "2026-01-01T00:00:00.000Z";
const digest = `sha256:${"0".repeat(64)}` as Digest;

/** Everything that agents and executors may do now. */
export function* agentMoves(world: World, setup: Setup): Generator<Move<World>> {
  for (const name of names) {
    if (name === "B" && !world.replaced) continue;
    if (world.agents[name].up) yield* upMoves(world, setup, name);
    else if (setup.place !== "same folder" || !world.agents[name === "A" ? "B" : "A"].up) {
      yield move(`${name} starts`, false, (draft) => {
        draft.agents[name].up = true;
      });
    }
  }
  yield* executorMoves(world, setup);
}

function* upMoves(world: World, setup: Setup, name: Name): Generator<Move<World>> {
  const { link } = world.agents[name];
  yield move(`${name} crashes`, true, (draft) => crash(draft, setup, name));
  // A replaced agent gives way in the end: somebody stops it, or it stops itself when it is refused.
  if (name === "A" && world.replaced && setup.place === "same folder") {
    yield move("A is stopped", false, (draft) => crash(draft, setup, name));
  }
  if (name === "B" && world.db.agents.B === "unknown" && setup.place === "same folder") {
    yield move("B is stopped", false, (draft) => crash(draft, setup, name));
  }
  if (!link) {
    yield* sends(world, setup, name, "connects", (draft) => connect(draft, setup, name));
  } else {
    yield move(`${name} is cut off`, true, (draft) => {
      draft.agents[name].link = null;
    });
    const [head] = link.down;
    if (head) {
      yield move(`${name} gets ${head.t}: ${frameKey(head)}`, false, (draft) => {
        const taken = draft.agents[name].link?.down.shift();
        return taken && take(draft, setup, name, taken);
      });
    }
  }
  for (const row of folderOf(world, name, setup.place).rows) {
    yield* rowMoves(world, setup, name, row);
  }
}

function* rowMoves(world: World, setup: Setup, name: Name, row: Row): Generator<Move<World>> {
  const { e } = row;
  const { link } = world.agents[name];
  const executor = executorOf(world, name, setup.place, e);
  if (row.phase === "starting" && !setup.rules.proofIsAtomic) {
    yield move(`${name} proves that nothing else is alive: ${e}`, false, (draft) => {
      const target = folderOf(draft, name, setup.place).rows.find((each) => each.e === e);
      if (target) target.phase = "cleared";
      prove(draft, setup, name);
    });
    return;
  }
  if (isStarting(row)) {
    yield move(`${name} launches: ${e}`, false, (draft) => launch(draft, setup, name, e));
    return;
  }
  if (row.ending && executor && executor.end === null) {
    yield move(`${name} ends the executor: ${e}, cancelled`, false, (draft) => {
      const target = executorOf(draft, name, setup.place, e);
      if (target) Object.assign(target, { alive: false, end: "cancelled" });
    });
  }
  if (!link?.welcomed || link.told.includes(e)) return;
  const end = executor?.end ?? null;
  const told = (draft: World, frame: Up) => {
    draft.agents[name].link?.told.push(e);
    return frame;
  };
  if (end !== null && link.kept.includes(e)) {
    yield* sends(world, setup, name, `tells the outcome: of ${e}`, (draft) =>
      told(draft, { t: "outcome", e, end }),
    );
  }
  if (isLost(world, setup, name, row) && !row.ending) {
    yield* sends(world, setup, name, `tells the loss: of ${e}`, (draft) =>
      told(draft, { t: "lost", e }),
    );
  }
  const { job } = world.db;
  const isWaiting = job.state === "unreachable" || job.state === "offered";
  if (executor?.alive && isWaiting) {
    yield* sends(world, setup, name, `renews: ${e}`, () => ({ t: "renew", e }));
  }
}

/** A frame that is heard at once; or on a connection so slow that the agent gives it up, and heard later. */
function* sends(
  world: World,
  setup: Setup,
  name: Name,
  label: string,
  frameOf: (draft: World) => Up,
): Generator<Move<World>> {
  yield move(`${name} ${label}`, false, (draft) => hear(draft, setup, name, frameOf(draft)));
  if (!setup.faults.late || world.agents[name].late.length > 0) return;
  yield move(`${name} slowly ${label}`, true, (draft) => {
    draft.agents[name].late.push(frameOf(draft));
    draft.agents[name].link = null;
  });
}

function crash(draft: World, setup: Setup, name: Name): undefined {
  Object.assign(draft.agents[name], { up: false, link: null });
  for (const row of folderOf(draft, name, setup.place).rows) {
    if (isStarting(row)) row.phase = "void";
  }
}

function connect(draft: World, setup: Setup, name: Name): Up {
  const folder = folderOf(draft, name, setup.place);
  const known = folder.rows.filter((row) => !isLost(draft, setup, name, row));
  const { beyond } = folder;
  draft.agents[name].link = {
    ready: false,
    welcomed: false,
    recalling: false,
    cancelSent: false,
    kept: [],
    told: [],
    down: [],
  };
  return {
    t: "hello",
    journal: known.map(({ e }) => e),
    beyond,
    generation: generationOf(folder),
  };
}

function generationOf(folder: Folder): number {
  return epochOf(folder.newest).generation;
}

function isStarting({ phase }: Row): boolean {
  return phase === "starting" || phase === "cleared";
}

/** Nothing runs, and nothing says how it ended. */
function isLost(world: World, { place }: Setup, name: Name, row: Row): boolean {
  if (isStarting(row)) return false;
  const executor = executorOf(world, name, place, row.e);
  return row.phase === "void" || !executor || (!executor.alive && executor.end === null);
}

function take(draft: World, setup: Setup, name: Name, frame: Down): string | undefined {
  const folder = folderOf(draft, name, setup.place);
  const { link } = draft.agents[name];
  switch (frame.t) {
    case "welcome": {
      if (link) Object.assign(link, { welcomed: true, kept: frame.keep });
      folder.beyond = frame.beyond;
      const broken = frame.forget.map((e) => forget(draft, setup, name, e));
      return broken.find((each) => each !== undefined);
    }
    case "offer":
      return takeOffer(draft, setup, name, frame.e);
    case "cancel": {
      const row = folder.rows.find(({ e }) => e === frame.e);
      if (!row) return hear(draft, setup, name, { t: "lost", e: frame.e });
      row.ending = true;
      return undefined;
    }
    case "loss-ack":
      folder.beyond = frame.beyond;
      return forget(draft, setup, name, frame.e);
    case "ack": {
      folder.beyond = frame.beyond;
      const { job } = draft.db;
      const end = executorOf(draft, name, setup.place, frame.e)?.end;
      if (isFinished(job.state) && end && codeOf(job.epoch) === frame.e) {
        draft.ghost.acked = { e: frame.e, end };
      }
      return forget(draft, setup, name, frame.e);
    }
    case "recall": {
      const tries = [
        ...folder.ended,
        ...folder.rows
          .filter((row) => !isLost(draft, setup, name, row))
          .map(({ e }) => ({ e, end: executorOf(draft, name, setup.place, e)?.end ?? null })),
      ];
      return hear(draft, setup, name, {
        t: "recalled",
        tries,
        generation: generationOf(folder),
      });
    }
    case "superseded":
      return crash(draft, setup, name);
  }
}

/** Ends what is left of a try and drops its row; its epoch and its outcome stay in memory. */
function forget(draft: World, setup: Setup, name: Name, e: Code): string | undefined {
  const folder = folderOf(draft, name, setup.place);
  if (!folder.rows.some((row) => row.e === e)) return undefined;
  folder.rows = folder.rows.filter((row) => row.e !== e);
  const executor = executorOf(draft, name, setup.place, e);
  if (!executor) return undefined;
  const isKill = executor.alive && executor.end === null;
  executor.alive = false;
  tidy(draft, setup.place);
  if (executor.end !== null && setup.faults.restore) folder.ended.push({ e, end: executor.end });
  const hasReason = draft.replaced || draft.restored || draft.db.job.cancelRequested;
  return isKill && !hasReason
    ? `The executor of ${e} was killed, though nobody had cancelled it.`
    : undefined;
}

function takeOffer(draft: World, setup: Setup, name: Name, e: Code): string | undefined {
  const folder = folderOf(draft, name, setup.place);
  const decision = decide(draft, setup, name, e);
  if (decision.kind === "again") return hear(draft, setup, name, { t: "accepted", e });
  if (decision.kind === "refuse") {
    const passing = decision.code === "older_epoch_alive" || decision.code === "no_slot";
    // Known: where an agent remembers nothing but an epoch, a restore is not noticed, and costs an attempt.
    const isKnown = draft.restored && !draft.ghost.noticed;
    if (decision.code === "replayed" && !isKnown) return `${e} was given out before.`;
    return hear(draft, setup, name, { t: "refused", e, passing });
  }
  for (const { epoch } of decision.clear) {
    const rival = executorOf(draft, name, setup.place, codeOf(epoch));
    if (rival) rival.alive = false;
  }
  if (isOlder(e, folder.newest)) return `The epoch at agent ${name} went down to ${e}.`;
  folder.newest = e;
  folder.rows.push({ e, phase: "starting", ending: false });
  return undefined;
}

function decide(world: World, setup: Setup, name: Name, e: Code): OfferDecision {
  const folder = folderOf(world, name, setup.place);
  const offer = {
    key: { jobId, epoch: epochOf(e) },
    manifest: { jobId },
    manifestDigest: digest,
    grant: { agentId: name, jobId, manifestDigest: digest, serverTime: now, leaseSeconds: 30 },
    component: "install/component",
  } as unknown as VerifiedOffer;
  return decideOffer(offer, {
    agentId: name,
    serverNowMs: Date.parse(now),
    newestEpoch: folder.newest === 0 ? null : epochOf(folder.newest),
    jobs: folder.rows.map((row) => ({
      key: { jobId, epoch: epochOf(row.e) },
      component: "install/component",
      manifestDigest: digest,
      over:
        !isStarting(row) &&
        (isLost(world, setup, name, row) ||
          executorOf(world, name, setup.place, row.e)?.end !== null),
    })),
    freeSlots: 1,
  });
}
