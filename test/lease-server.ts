/** The server's part of the model: what it does with each frame, and what it does by itself. */
import { isFinished } from "../src/model/job.ts";
import { judgeJournal } from "../src/model/journal-rules.ts";
import { mustRecall, outcomeOf, putBack } from "./lease-recall.ts";
import {
  type Code,
  codeOf,
  type End,
  epochOf,
  folderOf,
  isOlder,
  jobId,
  type Link,
  type Name,
  type Setup,
  stepDb,
  type Up,
  type World,
} from "./lease-world.ts";
import type { Move } from "./state-explorer.ts";

/** Everything that the server may do now, by itself or on a frame. */
export function* serverMoves(world: World, setup: Setup): Generator<Move<World>> {
  for (const name of ["A", "B"] as const) {
    const { link, late } = world.agents[name];
    const [older] = late;
    if (older) {
      const label = `server hears, late, ${older.t}: of ${name} ${describe(older)}`;
      yield fault(label, (draft) => {
        const taken = draft.agents[name].late.shift();
        return taken && hearLate(draft, setup, name, taken);
      });
    }
    if (link?.ready) yield* serveLink(world, setup, name, link);
  }
  yield* timeAndPeople(world, setup);
}

function* serveLink(world: World, setup: Setup, name: Name, link: Link): Generator<Move<World>> {
  const { job, held, agents, generation } = world.db;
  const isFree = job.state === "queued" && !held && job.epoch.n < setup.offersMax;
  if (isFree && agents[name] === "active") {
    yield calm(`server offers: to ${name}`, (draft) => {
      const { broken } = stepDb(draft, setup, { type: "offer", agent: name, generation });
      const e = codeOf(draft.db.job.epoch);
      draft.agents[name].link?.down.push({ t: "offer", e });
      return broken;
    });
  }
  if (job.cancelRequested && job.agent === name && !link.cancelSent) {
    yield calm(`server sends cancel: to ${name}`, (draft) => {
      const target = draft.agents[name].link;
      if (target) target.cancelSent = true;
      target?.down.push({ t: "cancel", e: codeOf(draft.db.job.epoch) });
      return undefined;
    });
  }
}

/** Leases, limits, back-ups, and people. */
function* timeAndPeople(world: World, setup: Setup): Generator<Move<World>> {
  const { job, agents } = world.db;
  if (setup.faults.dawdle && (job.state === "offered" || job.state === "running")) {
    yield fault("lease lapses", (draft) => stepDb(draft, setup, { type: "silence" }).broken);
  }
  if (setup.faults.cancel && !isFinished(job.state) && !job.cancelRequested) {
    yield fault("person cancels", (draft) => stepDb(draft, setup, { type: "cancel" }).broken);
  }
  if (setup.faults.cancel && job.state === "queued" && !job.begun && !world.db.held) {
    yield fault(
      "limit to start is over",
      (draft) => stepDb(draft, setup, { type: "expire" }).broken,
    );
  }
  if (Object.values(world.agents).some(({ link, late }) => link || late.length > 0)) {
    yield fault("server crashes", (draft) => cutAll(draft));
  }
  // After a restore the server may not know B any more: then a person must help.
  if (setup.faults.replace && agents.A === "active") {
    const isHelp = world.replaced;
    yield {
      label: "person replaces A by B",
      fault: !isHelp,
      apply(draft) {
        draft.db.agents = { A: "revoked", B: "active" };
        draft.db.generation += 1;
        draft.replaced = true;
        draft.changed = draft.backup !== null && !draft.restored;
        draft.agents.A.link = null;
        return undefined;
      },
    };
  }
  if (setup.faults.restore) yield* backUps(world);
}

function* backUps(world: World): Generator<Move<World>> {
  if (!world.backup && !world.restored) {
    yield fault("back-up is taken", (draft) => {
      draft.backup = { ...draft.db };
      for (const folder of Object.values(draft.folders)) folder.beyond = false;
      return undefined;
    });
  }
  if (world.backup && world.changed && !world.restored) {
    yield fault("server is restored", (draft) => {
      if (draft.backup) draft.db = { ...draft.backup };
      draft.backup = null;
      draft.restored = true;
      draft.changed = false;
      return cutAll(draft);
    });
  }
}

/** A frame of an older connection, after the agent has given that up. */
function hearLate(draft: World, setup: Setup, name: Name, frame: Up): string | undefined {
  if (frame.t === "recalled") return undefined; // that connection was not asked any more
  if (frame.t !== "hello") return hear(draft, setup, name, frame);
  if (!setup.rules.lateHellos) return undefined;
  const { link } = draft.agents[name];
  draft.agents[name].link = null;
  const broken = hear(draft, setup, name, frame);
  if (link) draft.agents[name].link = { ...link, ready: false, down: [{ t: "superseded" }] };
  return broken;
}

/** Takes one frame of an agent. */
export function hear(draft: World, setup: Setup, name: Name, frame: Up): string | undefined {
  const { link } = draft.agents[name];
  const by = "e" in frame ? { agent: name, epoch: epochOf(frame.e) } : null;
  switch (frame.t) {
    case "hello":
      return greet(draft, setup, name, frame);
    case "recalled":
      return putBack(draft, setup, name, frame);
    case "accepted":
      return by ? stepDb(draft, setup, { type: "start", ...by }).broken : undefined;
    case "renew":
      return by ? stepDb(draft, setup, { type: "renew", ...by }).broken : undefined;
    case "refused": {
      const type = frame.passing ? "nack" : "lose";
      return by ? stepDb(draft, setup, { type, ...by }).broken : undefined;
    }
    case "lost": {
      const broken = by && stepDb(draft, setup, { type: "lose", ...by }).broken;
      link?.down.push({ t: "loss-ack", e: frame.e, beyond: isBeyond(draft, setup, name) });
      return broken ?? undefined;
    }
    case "outcome":
      return takeOutcome(draft, setup, name, frame);
  }
}

function takeOutcome(
  draft: World,
  setup: Setup,
  name: Name,
  { e, end }: { e: Code; end: End },
): string | undefined {
  const { started } = draft.ghost;
  const newest = codeOf(draft.db.job.epoch);
  const newer = [...started, newest].find((each) => isOlder(e, each));
  const how = { type: "finish", agent: name, epoch: epochOf(e), ...outcomeOf(end) } as const;
  const { taken, broken } = stepDb(draft, setup, how);
  // A repetition, or the report of an older epoch: refused, and forgotten by the agent.
  draft.agents[name].link?.down.push({ t: "ack", e, beyond: isBeyond(draft, setup, name) });
  // Known: a back-up from before the replacement makes A the agent again, beside a B that works elsewhere.
  const isTorn = draft.restored && draft.replaced && setup.place !== "same folder";
  if (taken && newer && !isTorn)
    return `The server believed the outcome of ${e}, though there was ${newer}.`;
  return broken;
}

/** Whether the agent will remember a place in history that the back-up does not know. */
function isBeyond(draft: World, { rules, place }: Setup, name: Name): boolean {
  return rules.ackCheckpoints ? draft.changed : folderOf(draft, name, place).beyond;
}

function greet(
  draft: World,
  setup: Setup,
  name: Name,
  hello: Extract<Up, { t: "hello" }>,
): string | undefined {
  const { db } = draft;
  const agent = draft.agents[name];
  if (db.agents[name] !== "active") {
    agent.link = null;
    return undefined;
  }
  const recalling = mustRecall(draft, setup, hello) && setup.rules.recallFirst;
  const holder = db.job.agent as Name | null;
  const agentRevoked = holder !== null && holder !== name && db.agents[holder] === "revoked";
  const held =
    holder === name || agentRevoked ? [{ key: { jobId, epoch: db.job.epoch }, agentRevoked }] : [];
  const journal = hello.journal.map((e) => ({ jobId, epoch: epochOf(e) }));
  const judged = judgeJournal(held, journal);
  const broken: (string | undefined)[] = [];
  for (const { epoch } of judged.keep) {
    broken.push(stepDb(draft, setup, { type: "renew", agent: name, epoch }).broken);
  }
  for (const { epoch } of recalling ? [] : [...judged.adopt, ...judged.lost]) {
    const from = holder ?? name;
    if (agentRevoked) {
      broken.push(stepDb(draft, setup, { type: "adopt", from, agent: name, epoch }).broken);
    }
  }
  for (const { epoch } of recalling ? [] : judged.lost) {
    broken.push(stepDb(draft, setup, { type: "lose", agent: name, epoch }).broken);
  }
  const keep = [...judged.keep, ...(recalling ? [] : judged.adopt)];
  const { link } = agent;
  link?.down.push({
    t: "welcome",
    keep: keep.map(({ epoch }) => codeOf(epoch)),
    forget: recalling ? [] : judged.forget.map(({ epoch }) => codeOf(epoch)),
    beyond: draft.changed,
  });
  if (link) link.ready = !recalling;
  if (link && recalling) {
    link.recalling = true;
    link.down.push({ t: "recall" });
  }
  if (!recalling) db.held = false;
  return broken.find((each) => each !== undefined);
}

function cutAll(draft: World): undefined {
  for (const name of ["A", "B"] as const) {
    draft.agents[name].link = null;
    draft.agents[name].late = [];
  }
}

function describe(frame: Up): string {
  const { t: _t, ...rest } = frame;
  return JSON.stringify(rest);
}

function calm(label: string, apply: Move<World>["apply"]): Move<World> {
  return { label, fault: false, apply };
}

function fault(label: string, apply: Move<World>["apply"]): Move<World> {
  return { label, fault: true, apply };
}
