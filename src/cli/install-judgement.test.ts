import assert from "node:assert/strict";
import { test } from "node:test";
import { describePause, isStale, judgeInstall, needsDeploy } from "./install-judgement.ts";
import { sampleComponent, sampleInstall } from "./install-view-samples.ts";

const failed = sampleInstall({ components: [sampleComponent("web", { state: "failed" })] });

test("an install is done only when it is settled and nothing of it failed", () => {
  assert.equal(judgeInstall(sampleInstall()), "done");
  assert.equal(judgeInstall(sampleInstall({ settled: false })), "working");
  assert.equal(judgeInstall(failed), "failed");
  assert.equal(judgeInstall(sampleInstall({ reason: "no disk" })), "failed");
});

test("a failure among work that goes on is not the end yet", () => {
  assert.equal(judgeInstall({ ...failed, settled: false }), "working");
});

test("a settled install on the newest release needs no deploy", () => {
  assert.equal(needsDeploy(sampleInstall(), 1), false);
});

test("an older release, or a failure, needs a deploy; a first release comes by itself", () => {
  assert.equal(needsDeploy(sampleInstall(), 2), true);
  assert.equal(needsDeploy(failed, 1), true);
  assert.equal(needsDeploy(sampleInstall({ releaseNumber: null, settled: false }), 1), false);
});

test("a view from before the last deploy, or of a namesake, is not believed", () => {
  const asked = sampleInstall({ deploy: 2 });

  assert.equal(isStale(sampleInstall({ deploy: 1 }), asked), true);
  assert.equal(isStale(sampleInstall({ deploy: 2 }), asked), false);
  assert.equal(isStale(sampleInstall({ deploy: 5, id: "ins_other" }), asked), true);
});

test("whoever waits for a paused install is told why, and how it goes on", () => {
  const pause = { reason: "their audit", by: "ada", since: "2030-01-01T00:00:00Z" };

  assert.equal(describePause(sampleInstall()), null);
  assert.match(
    describePause(sampleInstall({ pause })) ?? "",
    /paused by ada: their audit\. .*landfall installs resume demo/,
  );
});
