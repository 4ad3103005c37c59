import assert from "node:assert/strict";
import { test } from "node:test";
import { isStale, judgeInstall, needsDeploy } from "./install-judgement.ts";
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
