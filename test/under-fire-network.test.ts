/**
 * Agents and server lose sight of each other, for a moment or for long: what runs goes on, once, and its
 * outcome counts once.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { assertOnce } from "./chaos/assert-once.ts";
import { openScene, shareScene } from "./chaos/scene.ts";
import { until } from "./system.ts";

const leaseSeconds = 1;

/** Of all tests but the one that needs a short lease. */
const shared = shareScene();

test("a partition of a second in the middle of an apply: one apply, one outcome, nobody is killed", async () => {
  const scene = shared();
  await scene.deploy([{ name: "partitioned", config: { sleep_ms: 2500, log_lines: 5 } }]);
  await scene.applying("partitioned");

  scene.install.proxy.hole();
  await delay(1000);
  scene.install.proxy.heal();
  await scene.settled();

  const story = await assertOnce(scene, "partitioned");
  assert.deepEqual(story, ["queued", "offered", "running", "succeeded"]);
  assert.deepEqual(await scene.remains(), []);
});

test("a partition of ten times the lease: one apply, one outcome, also of what ended meanwhile, and nobody is killed", async (t) => {
  const short = await openScene(t, { leaseSeconds });
  await short.deploy([
    { name: "ends_meanwhile", config: { sleep_ms: 3000, log_lines: 50 } },
    { name: "outlasts_it", config: { sleep_ms: leaseSeconds * 10_000 + 3000, log_lines: 50 } },
  ]);
  await short.applying("ends_meanwhile");
  await short.applying("outlasts_it");

  short.install.proxy.hole();
  await delay(leaseSeconds * 10_000);
  const during = [await short.applyJob("ends_meanwhile"), await short.applyJob("outlasts_it")];
  short.install.proxy.heal();
  await short.settled();

  assert.deepEqual(
    during.map(({ state }) => state),
    ["unreachable", "unreachable"],
  );
  await assertOnce(short, "ends_meanwhile");
  const story = await assertOnce(short, "outlasts_it");
  assert(story.lastIndexOf("running") > story.indexOf("unreachable"), story.join(" "));
  assert.deepEqual(await short.remains(), []);
});

test("slow connections in small pieces, cut ones, and an old one's frames that come late: each job ends once", async () => {
  const scene = shared();
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

test("a server that is away for the whole of a long job: the job ends without it, and its outcome arrives when it is back", async () => {
  const scene = shared();
  await scene.deploy([
    { name: "long", config: { sleep_ms: 4000, log_lines: 100 } },
    { name: "next", dependencies: ["long"], config: {} },
  ]);
  await scene.applying("long");

  const bringBack = await scene.product.takeServerAway();
  const hasEnded = async () => (await scene.applies("long")).some(({ endMs }) => endMs !== null);
  await until(hasEnded, "the job has ended while the server is away");
  await bringBack();
  await scene.settled();

  await assertOnce(scene, "long");
  await assertOnce(scene, "next");
  assert.deepEqual(await scene.remains(), []);
});
