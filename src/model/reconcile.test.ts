/**
 * The rules of reconcile, on random graphs and random interleavings of outcomes: a small world applies
 * what reconcile asks for, one outcome at a time, in an order that fast-check picks.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { DesiredComponent } from "./fingerprint.ts";
import { type Digest, digestOf } from "./json.ts";
import {
  type ActiveComponent,
  type FinishedJob,
  type InstallSituation,
  type NextJob,
  reconcile,
  replansMax,
} from "./reconcile.ts";

type Verdict = "succeeded" | "failed" | "stale";

/** What an install is, and what happened to it: all that reconcile sees, and all that it must not break. */
interface World {
  situation: {
    state: InstallSituation["state"];
    desired: DesiredComponent[];
    active: Map<string, ActiveComponent>;
    synced: Set<Digest>;
    underWay: Map<string | null, NextJob>;
    finished: Map<string | null, FinishedJob>;
    sandboxHash: string | null;
  };
  applied: string[];
  destroyed: string[];
  steps: number;
}

const graphs = fc
  .array(fc.array(fc.nat(), { maxLength: 3 }), { minLength: 1, maxLength: 8 })
  .map((edges) =>
    edges.map((picks, index) => ({
      name: `c${index}`,
      // Only components before it: a graph without cycles.
      dependencies: index === 0 ? [] : [...new Set(picks.map((pick) => `c${pick % index}`))],
    })),
  );
const choices = fc.infiniteStream(fc.nat());

test("it ends, and in the end everything is applied, each component after all it depends on", () => {
  fc.assert(
    fc.property(graphs, choices, (graph, picks) => {
      const world = createWorld(graph);

      runToRest(world, picks, () => "succeeded");

      assert.deepEqual(
        [...world.situation.active.keys()].sort(),
        graph.map(({ name }) => name).sort(),
      );
      for (const { name, dependencies } of graph) {
        for (const dependency of dependencies) {
          assert(world.applied.indexOf(dependency) < world.applied.indexOf(name));
        }
      }
      assert.equal(world.applied.length, graph.length);
    }),
  );
});

test("a held install gets no job, whatever there is to do, and all of them once it goes on", () => {
  fc.assert(
    fc.property(
      graphs,
      fc.constantFrom<InstallSituation["state"]>("provisioning", "active", "deleting", "deleted"),
      fc.boolean(),
      (graph, state, provisioned) => {
        const world = createWorld(graph);
        const situation = { ...look(world), state, sandboxHash: provisioned ? "hash" : null };

        assert.deepEqual(reconcile({ ...situation, held: true }), []);
        assert.equal(
          reconcile(situation).length > 0,
          state === "active" || state === "deleting" || (state === "provisioning" && !provisioned),
        );
      },
    ),
  );
});

test("whatever fails or goes stale, it ends, and nothing that depends on a failed one is applied", () => {
  const verdicts = fc.infiniteStream(
    fc.constantFrom<Verdict>("succeeded", "succeeded", "failed", "stale"),
  );
  fc.assert(
    fc.property(graphs, choices, verdicts, (graph, picks, outcomes) => {
      const world = createWorld(graph);

      runToRest(world, picks, () => outcomes.next().value);

      const active = world.situation.active;
      for (const { name, dependencies } of graph) {
        if (!world.applied.includes(name)) continue;
        for (const dependency of dependencies) assert(active.get(dependency)?.fingerprint);
      }
    }),
  );
});

test("a plan that goes stale again and again is given up after a few tries", () => {
  fc.assert(
    fc.property(choices, (picks) => {
      const world = createWorld([{ name: "c0", dependencies: [] }]);

      runToRest(world, picks, (operation) => (operation === "apply" ? "stale" : "succeeded"));

      assert.equal(world.situation.finished.get("c0")?.staleCount, replansMax + 1);
    }),
  );
});

test("where nothing is to be done it asks for nothing", () => {
  fc.assert(
    fc.property(graphs, choices, (graph, picks) => {
      const world = createWorld(graph);
      runToRest(world, picks, () => "succeeded");
      world.situation.finished.clear(); // A new deploy of the same release.

      assert.deepEqual(reconcile(look(world)), []);
    }),
  );
});

test("a change of one component touches it and what depends on its outputs, nothing else", () => {
  fc.assert(
    fc.property(graphs, choices, fc.nat(), (graph, picks, pick) => {
      const world = createWorld(graph);
      runToRest(world, picks, () => "succeeded");
      const changed = `c${pick % graph.length}`;
      world.situation.finished.clear();
      world.applied = [];
      world.situation.desired = world.situation.desired.map((component) =>
        component.name === changed ? { ...component, config: { changed: true } } : component,
      );

      runToRest(world, picks, () => "succeeded");

      // The outputs of this world depend on the fingerprint, so everything downstream follows.
      assert.deepEqual(world.applied.sort(), downstream(graph, changed));
    }),
  );
});

test("deleting runs the graph backwards, then removes the sandbox, and ends", () => {
  fc.assert(
    fc.property(graphs, choices, (graph, picks) => {
      const world = createWorld(graph);
      runToRest(world, picks, () => "succeeded");
      world.situation.state = "deleting";
      world.situation.finished.clear();

      runToRest(world, picks, () => "succeeded");

      assert.equal(world.situation.state, "deleted");
      for (const { name, dependencies } of graph) {
        for (const dependency of dependencies) {
          assert(world.destroyed.indexOf(name) < world.destroyed.indexOf(dependency));
        }
      }
    }),
  );
});

test("what a release no longer has is destroyed, and what stays stays", () => {
  fc.assert(
    fc.property(graphs, choices, (graph, picks) => {
      const world = createWorld(graph);
      runToRest(world, picks, () => "succeeded");
      const last = `c${graph.length - 1}`;
      world.situation.finished.clear();
      world.situation.desired = world.situation.desired.filter(({ name }) => name !== last);

      runToRest(world, picks, () => "succeeded");

      assert.deepEqual(world.destroyed, [last]);
      assert.equal(world.situation.active.size, graph.length - 1);
    }),
  );
});

test("a plan is applied only by its approval, and a failed one is not tried again by itself", () => {
  const world = createWorld([{ name: "c0", dependencies: [] }]);
  runUntil(world, "plan");
  finish(world, "c0", "succeeded");

  const [apply] = reconcile(look(world));

  assert.equal(apply?.operation, "apply");
  assert.deepEqual(apply?.approval, world.situation.finished.get("c0")?.approval);
  start(world, apply ? [apply] : []);
  finish(world, "c0", "failed");
  assert.deepEqual(reconcile(look(world)), []);
});

function createWorld(graph: readonly { name: string; dependencies: string[] }[]): World {
  const desired = graph.map(({ name, dependencies }) => ({
    name,
    type: "noop",
    config: {},
    dependencies,
    artifact: { repository: `app/${name}`, digest: digestOf(name), sizeBytes: 1 },
  }));
  return {
    situation: {
      state: "provisioning",
      desired,
      active: new Map(),
      synced: new Set(),
      underWay: new Map(),
      finished: new Map(),
      sandboxHash: null,
    },
    applied: [],
    destroyed: [],
    steps: 0,
  };
}

function look({ situation }: World): InstallSituation {
  const { active, underWay, ...rest } = situation;
  return {
    ...rest,
    held: false,
    inputs: {},
    active: [...active.values()],
    underWay: new Set(underWay.keys()),
  };
}

/** Starts what reconcile asks for and checks what must always hold. */
function start(world: World, jobs: readonly NextJob[]): void {
  const { underWay, active } = world.situation;
  for (const job of jobs) {
    assert(!underWay.has(job.component), "never two jobs of one component at once");
    if (job.operation === "plan" || job.operation === "apply") {
      const component = world.situation.desired.find(({ name }) => name === job.component);
      for (const dependency of component?.dependencies ?? []) {
        assert(active.get(dependency)?.fingerprint, "never before what it depends on");
        assert(!underWay.has(dependency), "never while what it depends on changes");
      }
    }
    underWay.set(job.component, job);
  }
}

function finish(world: World, name: string | null, verdict: Verdict): void {
  const { situation } = world;
  const job = situation.underWay.get(name);
  assert(job);
  situation.underWay.delete(name);
  const isStale = verdict === "stale" && job.operation === "apply";
  const status = verdict === "succeeded" ? "succeeded" : "failed";
  const component = situation.desired.find((each) => each.name === name);
  const approval =
    job.operation === "plan" && status === "succeeded"
      ? {
          planDigest: digestOf(`plan ${world.steps}`),
          approvalDigest: digestOf(`a ${world.steps}`),
        }
      : null;
  const stale = situation.finished.get(name)?.staleCount ?? 0;
  situation.finished.set(name, {
    operation: job.operation,
    status,
    code: isStale ? "stale_plan" : null,
    fingerprint: job.fingerprint,
    artifactDigest: component?.artifact.digest ?? null,
    approval,
    staleCount: stale + (isStale ? 1 : 0),
  });
  if (status === "succeeded") succeed(world, job, component);
}

function succeed(world: World, job: NextJob, component: DesiredComponent | undefined): void {
  const { situation } = world;
  if (job.operation === "provision") {
    situation.sandboxHash = "hash";
    situation.state = "active";
  } else if (job.operation === "destroy" && job.component === null) {
    situation.state = "deleted";
  } else if (job.operation === "destroy" && job.component !== null) {
    world.destroyed.push(job.component);
    situation.active.delete(job.component);
  } else if (component && job.operation === "sync") {
    situation.synced.add(component.artifact.digest);
  } else if (component && job.operation === "apply" && job.fingerprint) {
    world.applied.push(component.name);
    const { name, type, config, dependencies, artifact } = component;
    const outputsHash = `outputs of ${job.fingerprint}`;
    const fingerprint = job.fingerprint;
    situation.active.set(name, {
      name,
      type,
      config,
      dependencies,
      artifact,
      fingerprint,
      outputsHash,
    });
  }
}

function runToRest(
  world: World,
  picks: Iterator<number>,
  verdict: (operation: NextJob["operation"]) => Verdict,
): void {
  const stepsMax = 200;
  for (world.steps = 0; ; world.steps++) {
    assert(world.steps < stepsMax, "it ends");
    start(world, reconcile(look(world)));
    const open = [...world.situation.underWay.keys()];
    if (open.length === 0) return;
    const name = open[picks.next().value % open.length] ?? null;
    const job = world.situation.underWay.get(name);
    assert(job);
    finish(world, name, verdict(job.operation));
  }
}

function runUntil(world: World, operation: NextJob["operation"]): void {
  for (;;) {
    const jobs = reconcile(look(world));
    start(world, jobs);
    const [job] = jobs;
    assert(job);
    if (job.operation === operation) return;
    finish(world, job.component, "succeeded");
  }
}

function downstream(
  graph: readonly { name: string; dependencies: string[] }[],
  root: string,
): string[] {
  const reached = new Set([root]);
  for (const { name, dependencies } of graph) {
    if (dependencies.some((dependency) => reached.has(dependency))) reached.add(name);
  }
  return [...reached].sort();
}
