/** Facts for tests of `why`: whole and valid, so that a test says only what matters to it. */
import type { AgentFacts } from "./why-agent.ts";
import type { HoldFacts } from "./why-hold.ts";
import type { ComponentFacts, InstallFacts } from "./why-install.ts";
import type { JobFacts } from "./why-job.ts";

export const noon = "2030-01-01T12:00:00.000Z";
export const now = new Date("2030-01-01T13:00:00.000Z");

/** A connected agent of `acme` with room, unless said otherwise. */
export function sampleAgent(changes: Partial<AgentFacts> = {}): AgentFacts {
  return {
    id: "agt_1",
    install: "acme",
    connected: true,
    seenAt: noon,
    draining: null,
    revokedAt: null,
    slots: 2,
    holds: [],
    ...changes,
  };
}

/** Nothing holds `acme`, unless said otherwise. */
export function sampleHold(changes: Partial<HoldFacts> = {}): HoldFacts {
  return {
    install: "acme",
    pause: null,
    restoredAt: null,
    jobsMax: null,
    underWay: [],
    ...changes,
  };
}

/** A job of `acme` that is queued and could begin, unless said otherwise. */
export function sampleJob(changes: Partial<JobFacts> = {}): JobFacts {
  return {
    id: "job_1",
    operation: "apply",
    component: "web",
    install: "acme",
    app: "guestbook",
    state: "queued",
    since: noon,
    createdAt: noon,
    startedAt: null,
    finishedAt: null,
    notBefore: noon,
    startBy: null,
    cancel: null,
    attempts: { used: 0, max: 3 },
    returned: null,
    outcome: null,
    hold: sampleHold(),
    leaving: false,
    holder: null,
    queue: {
      name: "ins_1",
      install: "acme",
      agents: [sampleAgent()],
      replaced: null,
      ahead: 0,
      first: [],
    },
    ...changes,
  };
}

/** A component that is active, unless said otherwise. */
export function sampleComponent(
  name: string,
  changes: Partial<ComponentFacts> = {},
): ComponentFacts {
  return {
    name,
    state: "active",
    reason: null,
    dependencies: [],
    leaving: false,
    job: null,
    failure: null,
    approval: null,
    ...changes,
  };
}

/** An install at rest, unless said otherwise. */
export function sampleInstall(changes: Partial<InstallFacts> = {}): InstallFacts {
  return {
    name: "acme",
    app: "guestbook",
    state: "active",
    releaseNumber: 3,
    deploy: 2,
    createdAt: noon,
    settled: true,
    due: false,
    hold: sampleHold(),
    agents: [sampleAgent()],
    sandbox: { job: null, failure: null },
    components: [sampleComponent("web")],
    ...changes,
  };
}
