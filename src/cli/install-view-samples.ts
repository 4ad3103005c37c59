/** Views for tests: whole and valid, so that a test says only what matters to it. */
import type { ComponentView, InstallView, JobView } from "../protocol/api.ts";

/** A component; active unless said otherwise. */
export function sampleComponent(name: string, changes: Partial<ComponentView> = {}): ComponentView {
  return {
    name,
    type: "process",
    state: "active",
    reason: null,
    dependencies: [],
    jobId: null,
    artifactDigest: null,
    outputs: {},
    progress: null,
    ...changes,
  };
}

/** An install; settled on release 1 unless said otherwise. */
export function sampleInstall(changes: Partial<InstallView> = {}): InstallView {
  return {
    id: "ins_0123456789abcdefghjkmnpq",
    name: "demo",
    app: "guestbook",
    state: "active",
    settled: true,
    reason: null,
    sandboxType: "local",
    releaseNumber: 1,
    deploy: 1,
    agent: null,
    pause: null,
    restoredAt: null,
    jobsMax: null,
    conflicts: [],
    components: [sampleComponent("web")],
    createdAt: "2030-01-01T00:00:00Z",
    ...changes,
  };
}

/** A job that succeeded unless said otherwise. */
export function sampleJob(changes: Partial<JobView> = {}): JobView {
  return {
    id: "job_0123456789abcdefghjkmnpq",
    operation: "apply",
    state: "succeeded",
    app: "guestbook",
    install: "demo",
    component: "web",
    epoch: "1.1",
    agentId: null,
    manifestDigest: "sha256:00",
    createdAt: "2030-01-01T00:00:00Z",
    startedAt: "2030-01-01T00:00:01Z",
    finishedAt: "2030-01-01T00:00:02Z",
    cancelRequestedAt: null,
    outcome: { status: "succeeded" },
    ...changes,
  };
}
