/** Agents and server lose sight of each other; what runs goes on, once, and its outcome counts once. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { assertOnce } from "./chaos/assert-once.ts";
import { openScene } from "./chaos/scene.ts";
import { until } from "./system.ts";

const leaseSeconds = 1;

test("a partition of a second in the middle of an apply: one apply, one outcome, nobody is killed", async (t) => {
  const scene = await openScene(t);
  await scene.deploy([{ name: "long", config: { sleep_ms: 2500, log_lines: 5 } }]);
  await scene.applying("long");

  scene.install.proxy.hole();
  await delay(1000);
  scene.install.proxy.heal();
  await scene.settled();

  const story = await assertOnce(scene, "long");
  assert.deepEqual(story, ["queued", "offered", "running", "succeeded"]);
  assert.deepEqual(await scene.remains(), []);
});

test("a partition of ten times the lease: one apply, one outcome, also of what ended meanwhile, and nobody is killed", async (t) => {
  const scene = await openScene(t, { leaseSeconds });
  await scene.deploy([
    { name: "ends_meanwhile", config: { sleep_ms: 3000, log_lines: 50 } },
    { name: "outlasts_it", config: { sleep_ms: leaseSeconds * 10_000 + 3000, log_lines: 50 } },
  ]);
  await scene.applying("ends_meanwhile");
  await scene.applying("outlasts_it");

  scene.install.proxy.hole();
  await delay(leaseSeconds * 10_000);
  const during = [await scene.applyJob("ends_meanwhile"), await scene.applyJob("outlasts_it")];
  scene.install.proxy.heal();
  await scene.settled();

  assert.deepEqual(
    during.map(({ state }) => state),
    ["unreachable", "unreachable"],
  );
  await assertOnce(scene, "ends_meanwhile");
  const story = await assertOnce(scene, "outlasts_it");
  assert(story.lastIndexOf("running") > story.indexOf("unreachable"), story.join(" "));
  assert.deepEqual(await scene.remains(), []);
});

test("slow connections in small pieces, cut ones, and an old one's frames that come late: each job ends once", async (t) => {
  const scene = await openScene(t);
  const { proxy } = scene.install;
  await scene.deploy([
    { name: "first", config: { sleep_ms: 2000, log_lines: 300 } },
    { name: "second", config: { sleep_ms: 3000, log_lines: 300 } },
    { name: "third", dependencies: ["first"], config: { sleep_ms: 500, log_lines: 300 } },
  ]);
  await scene.applying("first");

  proxy.slow(50, 100);
  await delay(500);
  proxy.late(1500);
  await until(() => proxy.count() > 1, "a second connection beside the old one");
  proxy.cut();
  await until(() => proxy.count() > 0, "the agent is back");
  proxy.late(1000);
  await delay(2000);
  proxy.heal();
  await scene.settled();

  for (const component of ["first", "second", "third"]) await assertOnce(scene, component);
  assert.deepEqual(await scene.remains(), []);
});
