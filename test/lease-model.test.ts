/**
 * The model check: every state of job machine and lease protocol that crashes, cuts, late frames, lapsed
 * leases, people and a restore can lead to. The second half breaks one rule at a time and shows that the
 * check finds it: a check that finds nothing in broken rules would prove nothing about sound ones.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type JobRecord, type JobStep, stepJob } from "../src/model/job-rules.ts";
import { createLeaseModel } from "./lease-model.ts";
import { type Place, type Rules, realRules, type Setup } from "./lease-world.ts";
import { type Exploration, explore } from "./state-explorer.ts";

const statesMax = 1_000_000;
const noFaults = { restore: false, replace: false, late: false, cancel: false, dawdle: false };

interface Choice {
  readonly place?: Place;
  readonly offersMax: number;
  readonly faults: Partial<Setup["faults"]>;
  readonly rules?: Partial<Rules>;
}

function check({ place = "same folder", offersMax, faults, rules = {} }: Choice): Exploration {
  return explore(
    createLeaseModel({
      place,
      offersMax,
      faults: { ...noFaults, ...faults },
      rules: { ...realRules, ...rules },
    }),
    statesMax,
  );
}

/** Nothing broken, nothing stuck, and all of it really looked at. */
function assertSound(result: Exploration, statesMin: number, kinds: readonly string[]): void {
  assert.equal(result.violation, null, describe(result));
  assert.equal(result.stuck, null, result.stuck?.trace.join("\n"));
  assert(result.states >= statesMin, `Expected ${statesMin} states, got ${result.states}.`);
  for (const kind of kinds) assert(result.kinds.has(kind), `Expected "${kind}" to happen.`);
}

/** The rule that was broken is found; the shortest way there is shown. */
function assertFound(t: { diagnostic(text: string): void }, result: Exploration, what: RegExp) {
  assert(result.violation, "Expected a violation, got none.");
  assert.match(result.violation.broken, what);
  t.diagnostic(describe(result));
}

function describe({ violation }: Exploration): string {
  if (!violation) return "";
  return [violation.broken, ...violation.trace.map((step, index) => `${index + 1}. ${step}`)].join(
    "\n  ",
  );
}

test("one agent, three epochs: cuts, crashes, lapsed leases and a cancel at every step break nothing", () => {
  const result = check({ offersMax: 3, faults: { cancel: true, dawdle: true } });

  assertSound(result, 50_000, [
    "A is cut off",
    "A crashes",
    "executor dies",
    "executor applies",
    "executor writes ok",
    "executor writes fail",
    "executor exits",
    "lease lapses",
    "person cancels",
    "limit to start is over",
    "A renews",
    "A ends the executor",
    "A tells the loss",
    "A tells the outcome",
    "A gets ack",
    "A gets loss-ack",
    "A gets cancel",
    "server offers",
    "server sends cancel",
  ]);
});

test("frames of a connection that the agent gave up may arrive late, in any order, and break nothing", () => {
  const result = check({ offersMax: 2, faults: { late: true } });

  assertSound(result, 10_000, [
    "server hears, late, hello",
    "server hears, late, outcome",
    "server hears, late, lost",
    "A slowly connects",
  ]);
});

test("an agent that takes over the folder of the one it replaces doubles nothing and loses nothing", () => {
  const result = check({ offersMax: 3, faults: { replace: true } });

  assertSound(result, 20_000, [
    "person replaces A by B",
    "B gets ack",
    "A is stopped",
    "B launches",
  ]);
});

test("an agent with a fresh folder ends what the replaced one left on the machine, though that one is alive", () => {
  const result = check({ place: "fresh folder", offersMax: 3, faults: { replace: true } });

  assertSound(result, 10_000, ["server crashes", "A launches", "B launches", "B tells the loss"]);
});

test("a replaced agent on another machine, cut off and alive, is never believed again", () => {
  const result = check({ place: "other machine", offersMax: 2, faults: { replace: true } });

  assertSound(result, 10_000, ["A launches", "B launches", "executor applies"]);
});

test("a server restored from a back-up of any moment loses no acknowledged outcome and runs nothing twice", () => {
  const result = check({ offersMax: 2, faults: { restore: true } });

  assertSound(result, 50_000, [
    "back-up is taken",
    "server is restored",
    "A gets recall",
    "executor dies",
  ]);
});

test("a back-up from before the agent was replaced, in the same folder, doubles nothing either", () => {
  const result = check({ offersMax: 1, faults: { restore: true, replace: true } });

  assertSound(result, 10_000, ["server is restored", "person replaces A by B", "B gets recall"]);
});

test("found: an outcome that is taken whatever its epoch", (t) => {
  const step = (job: JobRecord, given: JobStep) =>
    stepJob(job, given.type === "finish" ? { ...given, epoch: job.epoch } : given);

  const result = check({ offersMax: 2, faults: { late: true }, rules: { step } });

  assertFound(t, result, /believed the outcome of 11/);
});

test("found: a launcher that starts without the proof that nothing else is alive", (t) => {
  const result = check({
    place: "fresh folder",
    offersMax: 2,
    faults: { replace: true },
    rules: { launcherProof: false },
  });

  assertFound(t, result, /alive at once/);
});

test("found: a proof that another launcher of the machine can get behind", (t) => {
  const result = check({
    place: "fresh folder",
    offersMax: 2,
    faults: { replace: true },
    rules: { proofIsAtomic: false },
  });

  assertFound(t, result, /alive at once/);
});

test("found: executors without a fence, where a replaced agent that was asleep launches what is over", (t) => {
  const result = check({
    place: "fresh folder",
    offersMax: 2,
    faults: { replace: true },
    rules: { fence: false },
  });

  assertFound(t, result, /Epoch 11 was applied after 22/);
});

test("found: an end that is acknowledged without a place in history", (t) => {
  const result = check({
    offersMax: 2,
    faults: { restore: true },
    rules: { ackCheckpoints: false },
  });

  assertFound(t, result, /though the outcome of 11 was acknowledged/);
});

test("found: a restore that does not raise the generation", (t) => {
  const result = check({
    offersMax: 2,
    faults: { restore: true },
    rules: { generationsRaised: false },
  });

  assertFound(t, result, /11 was given out before/);
});

test("found: a restored server that judges a journal before it has asked what happened", (t) => {
  const result = check({
    offersMax: 2,
    faults: { restore: true },
    rules: { recallFirst: false },
  });

  assertFound(t, result, /though/);
});

test("found: a restored server that puts back a try older than the one it knows", (t) => {
  const result = check({
    offersMax: 2,
    faults: { restore: true },
    rules: { recallGuard: false },
  });

  assertFound(t, result, /epoch of a job went down/);
});

test("found: silence that hands on an install's job", (t) => {
  const step = (job: JobRecord, given: JobStep) =>
    stepJob(given.type === "silence" ? { ...job, shared: true } : job, given);

  const result = check({ offersMax: 2, faults: { dawdle: true }, rules: { step } });

  assertFound(t, result, /killed, though nobody had cancelled|believed|alive at once|succeeded/);
});

test("found: a hello that was given up and is taken after a newer one", (t) => {
  const result = check({ offersMax: 2, faults: { late: true }, rules: { lateHellos: true } });

  assertFound(t, result, /killed, though nobody had cancelled|succeeded/);
});
