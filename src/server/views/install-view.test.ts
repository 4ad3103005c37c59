/** What a view of an install concludes from rows that were read one after the other. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type InstallFacts, viewInstall } from "./install-view.ts";

const quiet: InstallFacts = {
  install: {
    id: "ins_1",
    name: "acme",
    app_id: "app_1",
    app: "app",
    state: "active",
    sandbox_type: "local",
    sandbox: { outputs: {} },
    deploy: 1,
    due: false,
    busy: false,
    created_at: new Date("2030-01-01T00:00:00Z"),
    release_id: "rel_1",
    release_number: 1,
    release_components: {},
    config_number: 1,
    agent_id: null,
    agent_connected: false,
    agent_seen_at: null,
    drain_reason: null,
    agent_jobs: 0,
    agent_version: null,
    paused_at: null,
    paused_by: null,
    pause_reason: null,
    conflicts: [],
    recall_since: null,
    jobs_max: null,
  },
  config: null,
  deployed: [],
  jobs: [],
  builds: [],
  progress: new Map(),
};

test("an install that had an unfinished job when it was read is not settled, even if the job has ended since", () => {
  const busy = { ...quiet, install: { ...quiet.install, busy: true } };

  assert.equal(viewInstall(quiet).settled, true);
  assert.equal(viewInstall(busy).settled, false);
});

test("a sandbox that failed settles an install that is being made, with the reason", () => {
  const outcome = { status: "failed", code: "timed_out", message: "No answer." } as const;
  const job = {
    install_id: "ins_1",
    id: "job_1",
    component: null,
    operation: "provision",
    state: "failed",
  } as const;
  const making = { ...quiet.install, state: "provisioning", sandbox: null } as const;

  const waiting = viewInstall({ ...quiet, install: making });
  const failed = viewInstall({ ...quiet, install: making, jobs: [{ ...job, outcome }] });

  assert.equal(waiting.settled, false);
  assert.deepEqual([failed.settled, failed.reason], [true, "timed_out: No answer."]);
});
