/**
 * The world of the model check: a server's database, two agents of one install (B takes the place of A
 * when a person says so), their folders, the executors of one component's one job, and what is on its
 * way between them. Everything is plain data, so that a state is a JSON text.
 */
import type { JobId } from "../src/model/ids.ts";
import { compareEpochs, type Epoch, isFinished } from "../src/model/job.ts";
import { type JobRecord, type JobStep, stepJob } from "../src/model/job-rules.ts";

export type Name = "A" | "B";
export const names: readonly Name[] = ["A", "B"];
export const jobId = "job_1" as JobId;

/** An epoch as one number, so that states stay small: 23 is generation 2, try 3. */
export type Code = number;

/** `fail` is a failure that the job's policy retries. */
export type End = "ok" | "fail" | "cancelled";

export interface Executor {
  e: Code;
  by: Name;
  alive: boolean;
  /** It has changed the cloud. */
  applied: boolean;
  /** The outcome in its folder, written once. */
  end: End | null;
}

/** A row of the agent's journal. `void`: the agent died before it could launch it. */
export interface Row {
  e: Code;
  phase: "starting" | "cleared" | "launched" | "void";
  /** A cancel came for it. */
  ending: boolean;
}

/** What survives an agent. */
export interface Folder {
  rows: Row[];
  newest: Code;
  /** Told again when the server was restored. */
  ended: { e: Code; end: End }[];
  /** It remembers a checkpoint that the back-up does not know. */
  beyond: boolean;
}

export type Up =
  | { t: "hello"; journal: Code[]; beyond: boolean; generation: number }
  | { t: "accepted" | "lost" | "renew"; e: Code }
  | { t: "refused"; e: Code; passing: boolean }
  | { t: "outcome"; e: Code; end: End }
  | { t: "recalled"; tries: { e: Code; end: End | null }[]; generation: number };

export type Down =
  | { t: "welcome"; keep: Code[]; forget: Code[]; beyond: boolean }
  | { t: "offer" | "cancel"; e: Code }
  | { t: "ack" | "loss-ack"; e: Code; beyond: boolean }
  | { t: "recall" | "superseded" };

/**
 * A connection, with what is on its way to the agent. What the agent sends is heard at once, or never (it
 * was cut off before), or late (`Agent.late`): a frame that waits on a good connection is the same as one
 * that is sent later.
 */
export interface Link {
  /** The server has welcomed it, and it is the newest. */
  ready: boolean;
  welcomed: boolean;
  recalling: boolean;
  cancelSent: boolean;
  kept: Code[];
  told: Code[];
  down: Down[];
}

export interface Agent {
  up: boolean;
  link: Link | null;
  /** Frames of an older connection that the server has not taken yet. */
  late: Up[];
}

/** The part of a job that changes. */
export type Job = Omit<JobRecord, "attemptsMax" | "retryOn" | "shared">;

export interface Db {
  job: Job;
  generation: number;
  agents: Record<Name, "unknown" | "active" | "revoked">;
  /** Held until the agent has told what it did before the restore. */
  held: boolean;
}

export interface World {
  db: Db;
  backup: Db | null;
  restored: boolean;
  /** A person has replaced A; B exists from then on, whatever a restored server knows. */
  replaced: boolean;
  /** Something happened since the back-up. */
  changed: boolean;
  agents: Record<Name, Agent>;
  folders: Record<Name, Folder>;
  executors: Executor[];
  /** The newest epoch that has opened the component in the install's store. */
  fence: Code;
  /** What nobody in the world knows, for the invariants alone. */
  ghost: {
    acked: { e: Code; end: End } | null;
    /** Every epoch that an executor was started of. */
    started: Code[];
    /** The newest epoch that changed the cloud. */
    applied: Code;
    /** An executor wrote that it succeeded. */
    succeeded: boolean;
    /** The server has noticed that it was restored. */
    noticed: boolean;
  };
}

/** Where B works: on A's folder, beside it on the same machine, or on another machine. */
export type Place = "same folder" | "fresh folder" | "other machine";

/** What the model takes from the product, so that a test can break it. */
export interface Rules {
  readonly step: (job: JobRecord, step: JobStep) => JobRecord | null;
  /** Before an executor starts, the launcher has ended every other one of the component on the machine. */
  readonly launcherProof: boolean;
  /** Nobody else of the machine launches between the proof and the start. */
  readonly proofIsAtomic: boolean;
  /** An executor raises the component's fence in the install's store first, and ends if that is higher. */
  readonly fence: boolean;
  readonly generationsRaised: boolean;
  /** After a restore, the agent is asked before anything is lost or forgotten. */
  readonly recallFirst: boolean;
  /** A try that is older than what the server knows is not put back. */
  readonly recallGuard: boolean;
  /** With every end of a job that it takes, the server gives a place in its history. */
  readonly ackCheckpoints: boolean;
  /** A hello of an older connection is taken, though a newer one was welcomed. */
  readonly lateHellos: boolean;
}

export const realRules: Rules = {
  step: stepJob,
  launcherProof: true,
  proofIsAtomic: true,
  fence: true,
  generationsRaised: true,
  recallFirst: true,
  recallGuard: true,
  ackCheckpoints: true,
  lateHellos: false,
};

export interface Setup {
  readonly place: Place;
  readonly rules: Rules;
  /** Which faults there are, besides crashes and cuts. */
  readonly faults: {
    readonly restore: boolean;
    readonly replace: boolean;
    readonly late: boolean;
    readonly cancel: boolean;
    /** Leases that lapse, and executors that stay a while after their outcome. */
    readonly dawdle: boolean;
  };
  /** Offers of the job; what comes after is more of the same. */
  readonly offersMax: number;
}

export function codeOf({ generation, n }: Epoch): Code {
  return generation * 10 + n;
}

export function epochOf(code: Code): Epoch {
  return { generation: Math.floor(code / 10), n: code % 10 };
}

export function isOlder(a: Code, b: Code): boolean {
  return compareEpochs(epochOf(a), epochOf(b)) < 0;
}

/** The beginning: one queued job, one agent, nothing connected. */
export function createWorld(): World {
  const folder = (): Folder => ({ rows: [], newest: 0, ended: [], beyond: false });
  const agent = (up: boolean): Agent => ({ up, link: null, late: [] });
  const job: Job = {
    state: "queued",
    epoch: { generation: 1, n: 0 },
    agent: null,
    cancelRequested: false,
    begun: false,
    losses: 0,
    retries: 0,
    code: null,
  };
  return {
    db: { job, generation: 1, agents: { A: "active", B: "unknown" }, held: false },
    backup: null,
    restored: false,
    replaced: false,
    changed: false,
    agents: { A: agent(true), B: agent(false) },
    folders: { A: folder(), B: folder() },
    executors: [],
    fence: 0,
    ghost: { acked: null, started: [], applied: 0, succeeded: false, noticed: false },
  };
}

export function folderOf(world: World, name: Name, place: Place): Folder {
  return world.folders[place === "same folder" ? "A" : name];
}

/** The executors that an agent's launcher can see. */
export function executorsOf(world: World, name: Name, place: Place): Executor[] {
  return world.executors.filter((each) => place !== "other machine" || each.by === name);
}

/** Drops executors that are gone and that no row tells of: what counts of them is in `ghost`. */
export function tidy(world: World, place: Place): void {
  world.executors = world.executors.filter(
    ({ e, by, alive }) => alive || folderOf(world, by, place).rows.some((row) => row.e === e),
  );
}

/** The executor of a row: a folder has at most one of an epoch. */
export function executorOf(world: World, name: Name, place: Place, e: Code): Executor | undefined {
  return world.executors.find(
    (each) => each.e === e && (place === "same folder" || each.by === name),
  );
}

/** Drives the job by the rules; gives what that broke. `taken` says whether the step was. */
export function stepDb(
  world: World,
  setup: Setup,
  step: JobStep,
): { taken: boolean; broken: string | undefined } {
  const old = world.db.job;
  const policy = { attemptsMax: 3, retryOn: ["unavailable"], shared: false } as const;
  const next = setup.rules.step({ ...old, ...policy }, step);
  if (!next) return { taken: false, broken: undefined };
  const { attemptsMax: _a, retryOn: _r, shared: _s, ...job } = next;
  return { taken: true, broken: putJob(world, setup, job) };
}

/** Writes the job's row, and looks whether it may become what it becomes. */
export function putJob(world: World, { place }: Setup, job: Job): string | undefined {
  const old = world.db.job;
  world.db.job = job;
  world.changed = world.backup !== null && !world.restored;
  const { acked } = world.ghost;
  if (isFinished(old.state) && JSON.stringify(old) !== JSON.stringify(job)) {
    return `An ended job changed: ${old.state} became ${job.state}.`;
  }
  if (compareEpochs(job.epoch, old.epoch) < 0) return "The epoch of a job went down.";
  // Known: what a restored server ends in its queue before the agent was heard, stays ended; and what
  // only A's folder remembers is lost to a B that works elsewhere.
  const isBlind = world.replaced && place !== "same folder";
  if (
    acked &&
    !isBlind &&
    isFinished(job.state) &&
    old.state !== "queued" &&
    codeOf(job.epoch) !== acked.e
  ) {
    return `The acknowledged outcome of ${acked.e} was lost: the job ended as ${job.state} of ${codeOf(job.epoch)}.`;
  }
  return undefined;
}
