import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { ProcessRecord } from "../protocol/job-folder.ts";
import type { DesiredProcess, HealthCheck } from "../protocol/supervisor-folder.ts";
import {
  backoffFirstMs,
  backoffMaxMs,
  backoffMs,
  createMachine,
  decide,
  observe,
  stableMs,
  startMsMax,
  wakeAt,
} from "./process-machine.ts";
import type { Effect, Observation } from "./process-state.ts";
import { recover, statusOf } from "./process-status.ts";

const check: HealthCheck = { tcp: true, intervalMs: 1000, timeoutMs: 100, threshold: 3 };

test("a crash waits longer each time, up to the most, and never less than half of it", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 2000 }),
      fc.double({ min: 0, max: 1, noNaN: true }),
      (n, j) => {
        const waitMs = backoffMs(n, j);
        assert.ok(waitMs >= backoffFirstMs / 2 && waitMs <= backoffMaxMs);
        assert.ok(backoffMs(n + 1, j) >= waitMs);
      },
    ),
  );
  assert.equal(backoffMs(1, 1), 100);
  assert.equal(backoffMs(4, 1), 800);
});

test("a minute of health begins the backoff anew; a moment less does not", () => {
  const world = createWorld();
  for (let crash = 0; crash < 6; crash++) world.liveFor(0).crash();
  assert.equal(world.waitMs(), 3200);

  world.liveFor(stableMs - 1).crash();
  assert.equal(world.waitMs(), 6400);

  world.liveFor(stableMs).crash();
  assert.equal(world.waitMs(), backoffFirstMs);
});

test("a process that was never well is given its time, though quick probes fail again and again", () => {
  const world = createWorld({ health: check });
  world.launch();
  let probes = 0;
  while (world.now < startMsMax - 1000) {
    world.probe("refused");
    probes += 1;
  }
  assert.ok(probes > check.threshold);
  assert.equal(world.state(), "starting");

  while (world.state() === "starting") world.probe("refused");
  assert.equal(world.state(), "unhealthy");
  assert.ok(world.now >= startMsMax && world.now < startMsMax + 1000);
  assert.deepEqual(world.effects.at(-1), { kind: "ask", signal: "SIGTERM" });
});

test("a process turns unhealthy at the threshold, not before, and is started again", () => {
  const world = createWorld({ health: check });
  world.launch();
  for (const failure of [null, "a", "b", null, "a", "b"]) world.probe(failure);
  assert.equal(world.state(), "healthy");

  world.probe("c");
  assert.equal(world.state(), "unhealthy");
  world.alive.clear();
  world.clear();
  assert.equal(world.state(), "backoff");
  assert.match(world.status()?.reason ?? "", /unhealthy: c/);

  world.now += backoffMaxMs;
  world.decide();
  assert.equal(world.status()?.restarts, 1);
});

test("an unhealthy process that shall not be restarted goes on, and may recover", () => {
  const world = createWorld({ health: check, restart: "never" });
  world.launch();
  for (const failure of [null, "a", "b", "c", "d"]) world.probe(failure);
  assert.equal(world.state(), "unhealthy");

  world.probe(null);

  assert.equal(world.state(), "healthy");
});

test("a process that shall not be restarted stays stopped until its revision changes", () => {
  const world = createWorld({ restart: "never" });
  world.liveFor(500).crash();
  assert.equal(world.state(), "stopped");
  assert.equal(world.effects.filter(({ kind }) => kind === "launch").length, 1);

  world.desired = { ...world.wanted(), revision: "2" };
  world.decide();

  assert.equal(world.effects.filter(({ kind }) => kind === "launch").length, 2);
});

test("a process that does not stop when asked is killed after its grace, and again until it is gone", () => {
  const world = createWorld({ stopGraceMs: 700, stopSignal: "SIGINT" });
  world.liveFor(1000);
  world.desired = null;
  world.decide();
  assert.deepEqual(world.effects.at(-1), { kind: "ask", signal: "SIGINT" });

  world.now += 699;
  world.decide();
  assert.deepEqual(world.effects.at(-1), { kind: "ask", signal: "SIGINT" });

  world.now += 1;
  world.decide();
  world.now += 500;
  world.decide();
  assert.deepEqual(world.effects.slice(-2), [{ kind: "kill" }, { kind: "kill" }]);
});

test("whatever happens in whatever order, a name never has two processes, and what is wanted comes up", () => {
  fc.assert(
    fc.property(fc.array(step(), { maxLength: 80 }), (steps) => {
      const world = createWorld({ health: check });
      for (const apply of steps) {
        apply(world);
        assert.ok(world.alive.size <= 1, "two processes of one name");
        const due = wakeAt(world.machine);
        if (world.machine.phase.kind === "backoff") {
          assert.ok(due !== null && due - world.now <= backoffMaxMs);
        }
      }

      world.desired = createDesired({ health: check, revision: "last" });
      world.settle();

      assert.equal(world.state(), "healthy");
      assert.equal(world.status()?.revision, "last");
      world.desired = null;
      world.settle();
      assert.equal(world.alive.size, 0);
      assert.equal(world.state(), "stopped");
    }),
    { numRuns: 500 },
  );
});

/** One thing that may happen to a process, its supervisor or what is wanted of it. */
function step(): fc.Arbitrary<(world: World) => void> {
  return fc.oneof(
    fc.integer({ min: 0, max: 90_000 }).map((ms) => (world: World) => {
      world.now += ms;
      world.decide();
    }),
    fc.constantFrom("1", "2", null).map((revision) => (world: World) => {
      world.desired = revision === null ? null : createDesired({ health: check, revision });
      world.decide();
    }),
    fc.constantFrom("ill", null).map((failure) => (world: World) => world.probe(failure)),
    fc.constant((world: World) => world.crash()),
    fc.constant((world: World) => world.launch()),
    fc.constant((world: World) => world.failLaunch()),
    fc.constant((world: World) => world.clear()),
    fc.constant((world: World) => world.replaceSupervisor()),
  );
}

interface World extends ReturnType<typeof createWorld> {}

/** A machine with the smallest shell: processes are numbers in a set, and time is moved by hand. */
function createWorld(given: Partial<DesiredProcess> = {}) {
  let pid = 0;
  const world = {
    now: 0,
    machine: createMachine(),
    desired: createDesired(given) as DesiredProcess | null,
    alive: new Set<number>(),
    launching: false,
    effects: [] as Effect[],
    wanted: () => world.desired ?? createDesired(given),
    state: () => world.status()?.state,
    status: () => statusOf(world.machine),
    waitMs: () => (wakeAt(world.machine) ?? world.now) - world.now,
    see(observation: Observation) {
      world.machine = observe(world.machine, observation, { now: world.now, jitter: 1 });
      world.decide();
    },
    decide() {
      for (;;) {
        const step = decide(world.machine, world.desired, { now: world.now, jitter: 1 });
        world.machine = step.machine;
        if (step.effect === null) return;
        world.effects.push(step.effect);
        if (step.effect.kind === "launch") {
          assert.equal(world.alive.size, 0, "launched while another one was alive");
          assert.ok(!world.launching, "launched twice at once");
          world.launching = true;
        }
        if (step.effect.kind === "kill") world.alive.clear();
      }
    },
    launch() {
      world.decide();
      if (!world.launching) return;
      world.launching = false;
      pid += 1;
      world.alive.add(pid);
      world.see({ kind: "launched", process: record(pid), port: null });
    },
    failLaunch() {
      if (!world.launching) return;
      world.launching = false;
      world.see({ kind: "launch_failed", reason: "no such program" });
    },
    probe(failure: string | null) {
      world.now = Math.max(world.now, wakeAt(world.machine) ?? 0);
      world.decide();
      world.see({ kind: "probed", process: record(pid), failure });
    },
    liveFor(ms: number) {
      world.now += Math.max(0, world.waitMs());
      world.launch();
      world.now += Math.max(0, world.waitMs());
      world.decide();
      world.now += ms;
      return world;
    },
    crash() {
      world.alive.delete(pid);
      world.see({ kind: "exited", process: record(pid), reason: "Exited with code 1." });
      world.clear();
    },
    /** As the shell does: nothing is reported clear while anything is alive. */
    clear() {
      if (world.alive.size === 0) world.see({ kind: "cleared" });
    },
    /** kill -9 of the supervisor: what it knew is what its status says; a launch under way is known to nobody. */
    replaceSupervisor() {
      if (world.launching) world.alive.add(++pid);
      const said = statusOf(world.machine);
      const status = said === null ? null : { ...said, since: "" };
      const alive = status?.process != null && world.alive.has(status.process.pid);
      world.launching = false;
      world.machine = recover(status, world.desired, { alive, bootId: "boot", now: world.now });
      world.decide();
    },
    /** Lets the shell do its part until nothing more happens. */
    settle() {
      for (let round = 0; round < 20; round++) {
        world.now += Math.max(0, Math.min(backoffMaxMs, world.waitMs()));
        world.decide();
        world.launch();
        world.clear();
        if (world.machine.phase.kind === "running") world.probe(null);
      }
    },
  };
  return world;
}

function createDesired(given: Partial<DesiredProcess>): DesiredProcess {
  return {
    version: 1,
    revision: "1",
    command: ["true"],
    directory: "/",
    environment: {},
    port: null,
    health: null,
    restart: "always",
    stopSignal: "SIGTERM",
    stopGraceMs: 1000,
    ...given,
  };
}

function record(pid: number): ProcessRecord {
  return { pid, startTime: String(pid), bootId: "boot" };
}
