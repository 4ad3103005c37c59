/** Components, deploys and installs in every state, and any facts at all. */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { componentStates, isAtRest } from "./component-states.ts";
import {
  noon,
  now,
  sampleAgent,
  sampleComponent,
  sampleHold,
  sampleInstall,
  sampleJob,
} from "./why.fixture.ts";
import { depthMax, type FirstCause, listMax, type Why, waitKinds } from "./why.ts";
import { whyDeploy, whyInstall } from "./why-deploy.ts";
import {
  beginTelling,
  type ComponentFacts,
  type InstallFacts,
  whyComponent,
} from "./why-install.ts";

const pause = { reason: "audit week", by: "ada", since: noon };
const running = sampleJob({ state: "running", startedAt: noon, holder: sampleAgent() });
const failure = causeAt("job_9", "2030-01-01T12:30:00.000Z");

function causeAt(jobId: string, at: string): FirstCause {
  return { jobId, code: "operation_failed", message: "No such table", at };
}

function tellComponent(install: InstallFacts, name: string): Why {
  const why = whyComponent(beginTelling(install, now), name);
  assert(why);
  return why;
}

function waits(why: Why): string[] {
  return why.because.map(({ wait, subject }) => `${wait} ${subject.id}`);
}

test("a component in every state, with its job and without, says why it is there", () => {
  const expected: Record<string, { job: string[]; none: string[] }> = {
    disabled: { job: ["job job_1"], none: [] },
    waiting: { job: ["job job_1"], none: ["decision acme"] },
    building: { job: ["job job_1"], none: ["decision acme"] },
    syncing: { job: ["job job_1"], none: ["decision acme"] },
    planning: { job: ["job job_1"], none: ["decision acme"] },
    applying: { job: ["job job_1"], none: ["decision acme"] },
    active: { job: ["job job_1"], none: [] },
    failed: { job: [], none: [] },
    destroying: { job: ["job job_1"], none: ["decision acme"] },
    removed: { job: ["job job_1"], none: [] },
  };
  for (const state of componentStates) {
    const told = (["job", "none"] as const).map((way) => {
      const job = way === "job" ? running : null;
      const web = sampleComponent("web", {
        state,
        job,
        failure: state === "failed" ? failure : null,
      });
      const why = tellComponent(sampleInstall({ components: [web] }), "web");
      assert.match(why.summary, /\.$/);
      assert.equal(why.state, state);
      if (!isAtRest(state) && !job) assert(why.unblock.length > 0, state);
      return waits(why);
    });
    assert.deepEqual(told, [expected[state]?.job, expected[state]?.none], state);
  }
});

test("a chain of components is told down to its root, with what unblocks the root", () => {
  const away = sampleAgent({ connected: false });
  const job = sampleJob({ component: "a", queue: { ...sampleJob().queue, agents: [away] } });
  const install = sampleInstall({
    settled: false,
    components: [
      sampleComponent("a", { state: "applying", job }),
      sampleComponent("b", { state: "waiting", dependencies: ["a"] }),
      sampleComponent("c", { state: "waiting", dependencies: ["b"] }),
    ],
  });

  const why = tellComponent(install, "c");

  assert.deepEqual(chainOf(why), [
    "dependency acme/b",
    "dependency acme/a",
    "job job_1",
    "agent_offline agt_1",
  ]);
  assert.match(why.unblock.join(" "), /landfall agents replace acme/);
});

test("a component that waits for a failed one says which failed first, and why", () => {
  const early = causeAt("job_5", "2030-01-01T12:10:00.000Z");
  const install = sampleInstall({
    components: [
      sampleComponent("a", { state: "failed", failure }),
      sampleComponent("b", { state: "failed", failure: early }),
      sampleComponent("c", { state: "waiting", dependencies: ["a", "b"] }),
      sampleComponent("d", { state: "waiting", dependencies: ["c"] }),
    ],
  });

  const why = tellComponent(install, "d");

  assert.deepEqual(why.firstCause, early);
  assert.deepEqual(waits(why.because[0] ?? why), ["dependency acme/a", "dependency acme/b"]);
  assert.match(why.unblock.join(" "), /landfall deploy acme/);
});

test("what holds a component besides others is named: pause, restore, sandbox, release, approval", () => {
  const web = sampleComponent("web", { state: "waiting" });
  const told = (changes: Partial<InstallFacts>, own: Partial<ComponentFacts> = {}) =>
    waits(tellComponent(sampleInstall({ components: [{ ...web, ...own }], ...changes }), "web"));

  assert.deepEqual(told({ hold: sampleHold({ pause }) }), ["pause acme"]);
  assert.deepEqual(told({ hold: sampleHold({ restoredAt: noon }) }), ["restore acme"]);
  assert.deepEqual(told({ state: "provisioning" }), ["sandbox acme"]);
  assert.deepEqual(told({ releaseNumber: null }), ["release acme"]);
  assert.deepEqual(told({}, { approval: { jobId: "job_7", since: noon } }), ["approval job_7"]);
  assert.deepEqual(told({ due: true }), ["decision acme"]);
});

test("a component that is to be removed waits for those that depend on it", () => {
  const leaving = { leaving: true, state: "waiting" as const };
  const install = sampleInstall({
    state: "deleting",
    components: [
      sampleComponent("a", leaving),
      sampleComponent("b", { ...leaving, dependencies: ["a"], job: running, state: "destroying" }),
    ],
  });

  assert.deepEqual(chainOf(tellComponent(install, "a")), ["removal acme/b", "job job_1"]);
});

test("a build under way, and one that failed, are why there is no release", () => {
  const build = sampleJob({ ...running, operation: "build", install: null });
  const building = sampleInstall({
    releaseNumber: null,
    settled: false,
    components: [sampleComponent("web", { state: "building", job: build })],
  });
  const broken = sampleInstall({
    releaseNumber: null,
    components: [sampleComponent("web", { state: "failed", failure })],
  });

  assert.deepEqual(waits(tellComponent(building, "web")), ["build job_1"]);
  assert.deepEqual(chainOf(whyInstall(building, now)), ["release acme", "build job_1"]);
  assert.deepEqual(whyInstall(broken, now).firstCause, failure);
});

test("an install in every state says what it is doing, and what for", () => {
  const web = sampleComponent("web", { state: "applying", job: running });
  const told = (changes: Partial<InstallFacts>) => {
    const why = whyInstall(sampleInstall(changes), now);
    assert.match(why.summary, /\.$/);
    return [why.state, ...waits(why)];
  };
  const sandbox = { job: sampleJob({ ...running, component: null }), failure: null };

  assert.deepEqual(told({}), ["active"]);
  assert.deepEqual(told({ agents: [sampleAgent({ connected: false })] }), [
    "active",
    "agent_offline agt_1",
  ]);
  assert.deepEqual(told({ hold: sampleHold({ pause }) }), ["paused", "pause acme"]);
  assert.deepEqual(told({ settled: false, components: [web] }), [
    "deploying",
    "dependency acme/web",
  ]);
  assert.deepEqual(told({ settled: false, due: true }), ["deploying", "decision acme"]);
  assert.deepEqual(told({ settled: false, components: [web], hold: sampleHold({ pause }) }), [
    "paused",
    "pause acme",
    "dependency acme/web",
  ]);
  assert.deepEqual(told({ state: "provisioning", settled: false, sandbox }), [
    "provisioning",
    "sandbox acme",
  ]);
  assert.deepEqual(told({ state: "provisioning", sandbox: { job: null, failure } }), [
    "failed",
    "sandbox acme",
  ]);
  assert.deepEqual(told({ state: "deleting", settled: false, components: [] }), [
    "deleting",
    "sandbox acme",
  ]);
  assert.deepEqual(
    told({ state: "deleting", settled: false, hold: sampleHold({ pause }), components: [] }),
    ["paused", "pause acme", "sandbox acme"],
  );
  assert.deepEqual(told({ state: "deleted" }), ["deleted"]);
});

test("a deploy is done, under way, failed with its first cause, or superseded", () => {
  const web = sampleComponent("web", { state: "applying", job: running });
  const broken = sampleComponent("web", { state: "failed", failure });
  const told = (changes: Partial<InstallFacts>, number = 2, failures: FirstCause[] = []) =>
    whyDeploy(sampleInstall(changes), { number, failures }, now);

  const done = told({});
  const underWay = told({ settled: false, components: [web] });
  const failed = told({ components: [broken] }, 2, [causeAt("job_5", "2030-01-01T12:10:00.000Z")]);
  const superseded = told({}, 1, [failure]);

  assert.deepEqual([done.state, done.because], ["done", []]);
  assert.deepEqual([underWay.state, ...waits(underWay)], ["under_way", "dependency acme/web"]);
  assert.deepEqual([failed.state, failed.firstCause?.jobId], ["failed", "job_5"]);
  assert.deepEqual([superseded.state, superseded.firstCause], ["superseded", failure]);
});

test("a component that many ways lead to is explained once, and named after that", () => {
  const layers = 20;
  const components = [sampleComponent("x0", { state: "waiting" })];
  for (let layer = 1; layer <= layers; layer++) {
    const below = components.slice(-2).map(({ name }) => name);
    components.push(
      sampleComponent(`x${layer}`, { state: "waiting", dependencies: below }),
      sampleComponent(`y${layer}`, { state: "waiting", dependencies: below }),
    );
  }

  const why = tellComponent(sampleInstall({ components, settled: false }), `x${layers}`);

  const full = everyLink(why).filter(({ because }) => because.length > 0);
  assert(full.length <= components.length, String(full.length));
  assert(everyLink(why).length < components.length * 4);
});

const anyInstall: fc.Arbitrary<InstallFacts> = fc
  .record({
    state: fc.constantFrom<InstallFacts["state"]>("provisioning", "active", "deleting", "deleted"),
    releaseNumber: fc.option(fc.constant(3)),
    settled: fc.boolean(),
    due: fc.boolean(),
    pause: fc.option(fc.constant(pause)),
    restoredAt: fc.option(fc.constant(noon)),
    connected: fc.boolean(),
    sandboxJob: fc.boolean(),
    sandboxFailed: fc.boolean(),
    components: fc.array(
      fc.record({
        state: fc.constantFrom(...componentStates),
        // Any component, also itself or a later one: cycles must end too.
        dependencies: fc.array(fc.nat(70), { maxLength: 3 }),
        leaving: fc.boolean(),
        busy: fc.boolean(),
        failed: fc.boolean(),
        unapproved: fc.boolean(),
      }),
      { maxLength: 70 },
    ),
  })
  .map((facts) =>
    sampleInstall({
      state: facts.state,
      releaseNumber: facts.releaseNumber,
      settled: facts.settled,
      due: facts.due,
      hold: sampleHold({ pause: facts.pause, restoredAt: facts.restoredAt }),
      agents: [sampleAgent({ connected: facts.connected })],
      sandbox: {
        job: facts.sandboxJob ? running : null,
        failure: facts.sandboxFailed ? failure : null,
      },
      components: facts.components.map((each, index) =>
        sampleComponent(`c${index}`, {
          state: each.state,
          dependencies: each.dependencies.map((to) => `c${to}`),
          leaving: each.leaving,
          job: each.busy ? running : null,
          failure: each.failed ? failure : null,
          approval: each.unapproved ? { jobId: "job_7", since: noon } : null,
        }),
      ),
    }),
  );

test("whatever the facts of an install: what is unfinished has a reason, what waits can be unblocked, and it ends", () => {
  fc.assert(
    fc.property(anyInstall, (install) => {
      for (const { name, state, job } of install.components) {
        const why = tellComponent(install, name);
        checkBounds(why);
        if (isAtRest(state)) continue;
        if (state !== "failed") assert(why.because.length > 0, state);
        if (!job || state === "failed") assert(why.unblock.length > 0, state);
      }
      const whole = whyInstall(install, now);
      const deploy = whyDeploy(install, { number: install.deploy, failures: [] }, now);
      for (const why of [whole, deploy]) {
        checkBounds(why);
        const atRest = ["deleted", "active", "done"].includes(why.state);
        if (!atRest) assert(why.because.length > 0, why.summary);
      }
      const hasFailed = install.components.some((each) => each.state === "failed" && each.failure);
      if (hasFailed && install.state !== "deleted") assert.deepEqual(whole.firstCause, failure);
    }),
    { numRuns: 300 },
  );
});

test("a failure among work that goes on is told, but the install is not failed yet", () => {
  const components = [
    sampleComponent("a", { state: "failed", failure }),
    sampleComponent("b", { state: "applying", job: running }),
  ];
  const install = sampleInstall({ components, settled: false });

  const why = whyInstall(install, now);
  const deploy = whyDeploy(install, { number: 2, failures: [failure] }, now);

  assert.deepEqual([why.state, deploy.state], ["deploying", "under_way"]);
  assert.deepEqual([why.firstCause, deploy.firstCause], [failure, failure]);
});

test("of very many reasons the first are told one by one, and the rest counted", () => {
  const components = Array.from({ length: 80 }, (_, index) =>
    sampleComponent(`c${index}`, { state: "failed", failure }),
  );

  const why = whyInstall(sampleInstall({ components }), now);

  assert.equal(why.because.length, listMax);
  assert.match(why.because.at(-1)?.summary ?? "", /^And 31 more, the next: c49 failed/);
});

test("a chain that is too long ends with how to ask on, and still knows the first cause", () => {
  const components = Array.from({ length: 200 }, (_, index) =>
    index === 0
      ? sampleComponent("c0", { state: "failed", failure })
      : sampleComponent(`c${index}`, { state: "waiting", dependencies: [`c${index - 1}`] }),
  );

  const why = tellComponent(sampleInstall({ components }), "c199");

  assert.deepEqual(why.firstCause, failure);
  assert.match(why.unblock.join(" "), /landfall why acme\/c159/);
  checkBounds(why);
});

test("the documentation has every kind of wait", async () => {
  const text = await readFile(join(import.meta.dirname, "../../docs/jobs.md"), "utf8");

  for (const kind of waitKinds) assert(text.includes(`| \`${kind}\` |`), kind);
});

function checkBounds(why: Why): void {
  assert(depthOf(why) <= depthMax + 4, String(depthOf(why)));
  for (const each of everyLink(why)) {
    assert(each.because.length <= listMax);
    assert.match(each.summary, /[.!?…]$/, each.summary);
  }
}

function chainOf(why: Why): string[] {
  const [next] = why.because;
  return next ? [`${next.wait} ${next.subject.id}`, ...chainOf(next)] : [];
}

function everyLink(why: Why): Why[] {
  return [why, ...why.because.flatMap(everyLink)];
}

function depthOf(why: Why): number {
  return 1 + Math.max(0, ...why.because.map(depthOf));
}
