/** Each state that people are told, from the least that leads to it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type ComponentFacts, componentState, type JobFact } from "./component-state.ts";

const nothing: ComponentFacts = {
  wanted: true,
  disabledReason: null,
  deployed: false,
  upToDate: false,
  unblocked: true,
  due: false,
  released: true,
  build: null,
  unfinished: null,
  lastFinished: null,
};

const job = (operation: JobFact["operation"], outcome: JobFact["outcome"] = null): JobFact => ({
  id: `job_${operation}`,
  operation,
  unreachable: false,
  outcome,
});

const cases: readonly [string, Partial<ComponentFacts>, string][] = [
  ["nothing has happened yet", {}, "waiting"],
  ["its artifact is copied", { unfinished: job("sync") }, "syncing"],
  ["it is planned", { unfinished: job("plan") }, "planning"],
  ["it is applied", { unfinished: job("apply") }, "applying"],
  ["it is destroyed", { unfinished: job("destroy"), deployed: true, wanted: false }, "destroying"],
  [
    "it was copied, and nothing holds it up",
    { lastFinished: job("sync", { status: "succeeded" }) },
    "planning",
  ],
  [
    "it was copied, and waits for another",
    { lastFinished: job("sync", { status: "succeeded" }), unblocked: false },
    "waiting",
  ],
  ["it was planned", { lastFinished: job("plan", { status: "succeeded" }) }, "applying"],
  [
    "it was applied",
    { lastFinished: job("apply", { status: "succeeded" }), deployed: true, upToDate: true },
    "active",
  ],
  [
    "its job failed",
    { lastFinished: job("apply", { status: "failed" }), deployed: true },
    "failed",
  ],
  ["its job was cancelled", { lastFinished: job("sync", { status: "cancelled" }) }, "failed"],
  [
    "its plan went stale and will be made again",
    { lastFinished: job("apply", { status: "failed", code: "stale_plan" }), due: true },
    "planning",
  ],
  ["the sandbox cannot run it", { disabledReason: "needs terraform" }, "disabled"],
  [
    "the sandbox can no longer run it",
    { disabledReason: "needs terraform", deployed: true },
    "waiting",
  ],
  ["it is to go", { wanted: false, deployed: true }, "waiting"],
  [
    "it is gone",
    { wanted: false, lastFinished: job("destroy", { status: "succeeded" }) },
    "removed",
  ],
  [
    "it is being built for the first release",
    { released: false, build: { jobId: "job_build", state: "running", reason: null } },
    "building",
  ],
  [
    "its build failed",
    { released: false, build: { jobId: "job_build", state: "failed", reason: "bad_artifact: no" } },
    "failed",
  ],
  [
    "it is built, and others are not yet",
    { released: false, build: { jobId: "job_build", state: "succeeded", reason: null } },
    "waiting",
  ],
];

for (const [situation, facts, state] of cases) {
  test(`a component is ${state} when ${situation}`, () => {
    assert.equal(componentState({ ...nothing, ...facts }).state, state);
  });
}

test("a failure is told with its code and message, and the job to look at", () => {
  const lastFinished = job("apply", {
    status: "failed",
    code: "timed_out",
    message: "It took too long.",
  });

  const derived = componentState({ ...nothing, lastFinished });

  assert.deepEqual(derived, {
    state: "failed",
    reason: "timed_out: It took too long.",
    jobId: "job_apply",
  });
});

test("a job whose agent fell silent says so", () => {
  const derived = componentState({
    ...nothing,
    unfinished: { ...job("apply"), unreachable: true },
  });

  assert.match(derived.reason ?? "", /fell silent/);
});
