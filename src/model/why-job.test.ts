/** Every state of a job against every kind of thing it can wait for, and any facts at all. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isFinished, jobStates } from "./job.ts";
import { noon, now, sampleAgent, sampleHold, sampleJob } from "./why.fixture.ts";
import { depthMax, type WaitKind, type Why } from "./why.ts";
import type { JobName } from "./why-agent.ts";
import { type JobFacts, whyJob } from "./why-job.ts";

const later = "2030-01-01T14:00:00.000Z";
const other: JobName = {
  id: "job_2",
  operation: "plan",
  component: "database",
  install: "acme",
  state: "running",
  since: noon,
};
const queue = sampleJob().queue;
const pause = { reason: "audit week", by: "ada", since: noon };
const away = sampleAgent({ connected: false });
const draining = sampleAgent({ draining: { reason: "new disk", since: noon } });
const full = sampleAgent({ slots: 1, holds: [other] });
const revoked = sampleAgent({ id: "agt_0", connected: false, revokedAt: noon });
const cancel = { at: noon, by: "ada" };

/** Each kind of circumstance, and as what it shows in which state. */
const circumstances: {
  name: string;
  changes: Partial<JobFacts>;
  shows: Partial<Record<(typeof jobStates)[number], WaitKind[]>>;
}[] = [
  {
    name: "nothing",
    changes: { holder: sampleAgent() },
    shows: { queued: ["turn"], unreachable: ["agent_back"] },
  },
  {
    name: "a pause",
    changes: { hold: sampleHold({ pause }), holder: sampleAgent() },
    shows: { queued: ["pause"], unreachable: ["agent_back"] },
  },
  {
    name: "a restore",
    changes: { hold: sampleHold({ restoredAt: noon }), holder: sampleAgent() },
    shows: { queued: ["restore"], unreachable: ["agent_back"] },
  },
  {
    name: "an offline agent",
    changes: { queue: { ...queue, agents: [away] }, holder: away },
    shows: {
      queued: ["agent_offline"],
      offered: ["agent_offline"],
      running: ["agent_offline"],
      unreachable: ["agent_offline"],
    },
  },
  {
    name: "no agent",
    changes: { queue: { ...queue, agents: [] }, holder: null },
    shows: { queued: ["agent_missing"], unreachable: ["agent_missing"] },
  },
  {
    name: "a draining agent",
    changes: { queue: { ...queue, agents: [draining] }, holder: draining },
    shows: { queued: ["agent_draining"], unreachable: ["agent_back"] },
  },
  {
    name: "a replaced agent whose successor has not enrolled",
    changes: {
      queue: { ...queue, agents: [], replaced: { id: "agt_0", revokedAt: noon } },
      holder: revoked,
    },
    shows: {
      queued: ["agent_replaced"],
      offered: ["agent_replaced"],
      running: ["agent_replaced"],
      unreachable: ["agent_replaced"],
    },
  },
  {
    name: "a full agent",
    changes: { queue: { ...queue, agents: [full] }, holder: full },
    shows: { queued: ["agent_full"], unreachable: ["agent_back"] },
  },
  {
    name: "the install's limit",
    changes: { hold: sampleHold({ jobsMax: 1, underWay: [other] }), holder: sampleAgent() },
    shows: { queued: ["install_limit"], unreachable: ["agent_back"] },
  },
  {
    name: "a backoff",
    changes: {
      notBefore: later,
      attempts: { used: 1, max: 3 },
      returned: { reason: "Attempt 1 of 3 failed: unavailable", code: null },
      holder: sampleAgent(),
    },
    shows: { queued: ["backoff"], unreachable: ["agent_back"] },
  },
  {
    name: "an older executor",
    changes: {
      returned: { reason: "Process 12 of epoch 1.1 runs.", code: "older_epoch_alive" },
      holder: sampleAgent(),
    },
    shows: { queued: ["older_executor"], unreachable: ["agent_back"] },
  },
  {
    name: "jobs before it",
    changes: { queue: { ...queue, ahead: 3, first: [other] }, holder: sampleAgent() },
    shows: { queued: ["turn"], unreachable: ["agent_back"] },
  },
  {
    name: "a cancel",
    changes: { cancel, holder: sampleAgent() },
    shows: {
      queued: ["turn"],
      offered: ["cancel"],
      running: ["cancel"],
      unreachable: ["agent_back", "cancel"],
    },
  },
];

test("every job state names exactly the waits that apply in it, for every kind of wait", () => {
  for (const { name, changes, shows } of circumstances) {
    for (const state of jobStates) {
      const why = whyJob(jobIn(state, changes), now);

      assert.deepEqual(
        why.because.map(({ wait }) => wait),
        shows[state] ?? [],
        `${state} with ${name}`,
      );
      assert.equal(why.state, state);
      assert.match(why.summary, /^[A-Z].*\.$/, why.summary);
    }
  }
  const shown = new Set(circumstances.flatMap(({ shows }) => Object.values(shows).flat()));
  assert.equal(shown.size, 13);
});

test("several waits at once are all named, what a person did first", () => {
  const why = whyJob(
    sampleJob({
      hold: sampleHold({ pause, jobsMax: 1, underWay: [other] }),
      notBefore: later,
      queue: { ...queue, agents: [{ ...away, draining: draining.draining }], ahead: 2 },
    }),
    now,
  );

  assert.deepEqual(
    why.because.map(({ wait }) => wait),
    ["pause", "backoff", "agent_offline", "agent_draining", "install_limit", "turn"],
  );
  assert.match(why.summary, /waits in the queue: acme was paused by ada/);
  for (const command of ["installs resume acme", "agents replace acme", "agents undrain agt_1"]) {
    assert(
      why.unblock.some((text) => text.includes(`landfall ${command}`)),
      command,
    );
  }
});

test("a full agent names the jobs that fill it, and how to stop one", () => {
  const why = whyJob(sampleJob({ queue: { ...queue, agents: [full] } }), now);

  const [agent] = why.because;
  assert.match(agent?.summary ?? "", /All 1 slots .* plan of database in acme/);
  assert.deepEqual(
    agent?.because.map(({ subject }) => subject),
    [{ kind: "job", id: "job_2" }],
  );
  assert(why.unblock.some((text) => text.includes("landfall jobs cancel job_2")));
});

test("one build agent with room is enough, however many others are away", () => {
  const agents = [away, draining, sampleAgent({ install: null })];
  const build = sampleJob({
    operation: "build",
    install: null,
    hold: null,
    queue: { ...queue, name: "build", install: null, agents },
  });

  assert.deepEqual(
    whyJob(build, now).because.map(({ wait }) => wait),
    ["turn"],
  );
});

test("an offline agent is told with the time since when", () => {
  const why = whyJob(sampleJob({ queue: { ...queue, agents: [away] } }), now);

  assert.match(why.summary, /agent agt_1 of acme has been away since 2030-01-01 12:00:00 UTC/);
  assert.equal(why.because[0]?.since, noon);
});

test("a job of a replaced agent waits for the new one, down to its enrolment", () => {
  const facts = jobIn("unreachable", { holder: revoked, queue: { ...queue, agents: [] } });

  const unenrolled = whyJob(facts, now);
  const enrolled = whyJob({ ...facts, queue: { ...queue, agents: [away] } }, now);

  assert.deepEqual(chainOf(unenrolled), ["agent_replaced", "agent_replaced"]);
  assert.deepEqual(chainOf(enrolled), ["agent_replaced", "agent_offline"]);
});

test("a failed job tells its cause, its attempts, and the command that tries again", () => {
  const failed = jobIn("failed", {
    attempts: { used: 3, max: 3 },
    outcome: { code: "lost", message: "Tried 3 times" },
  });

  const why = whyJob(failed, now);
  const build = whyJob({ ...failed, operation: "build", install: null }, now);
  const leaving = whyJob({ ...failed, leaving: true }, now);

  assert.deepEqual(why.firstCause, {
    jobId: "job_1",
    code: "lost",
    message: "Tried 3 times",
    at: later,
  });
  assert.equal(why.summary, "Apply of web in acme failed after 3 attempts: lost: Tried 3 times.");
  assert.match(why.unblock.join(" "), /landfall deploy acme/);
  assert.match(build.unblock.join(" "), /landfall sync/);
  assert.match(leaving.unblock.join(" "), /landfall installs delete acme/);
});

test("a cancelled job says who cancelled it, and when", () => {
  const why = whyJob(
    jobIn("cancelled", { cancel, outcome: { code: "cancelled", message: null } }),
    now,
  );

  assert.equal(why.summary, "Apply of web in acme was cancelled by ada.");
  assert.equal(why.firstCause?.message, "Cancelled by ada at 2030-01-01 12:00:00 UTC.");
});

test("a limit to start is told, unless its clock stands still", () => {
  const bound = whyJob(sampleJob({ startBy: later }), now);
  const held = whyJob(sampleJob({ startBy: later, hold: sampleHold({ pause }) }), now);

  assert.match(bound.summary, /fails when nothing began it by 2030-01-01 14:00:00 UTC/);
  assert.doesNotMatch(held.summary, /fails when/);
});

const instants = fc.constantFrom(noon, later);
const names = fc.record<JobName>({
  id: fc.constantFrom("job_2", "job_3"),
  operation: fc.constantFrom("apply", "build", "destroy"),
  component: fc.constantFrom(null, "database"),
  install: fc.constantFrom(null, "acme"),
  state: fc.constantFrom("running", "offered", "unreachable"),
  since: fc.option(instants),
});
const agents = fc.record({
  id: fc.constantFrom("agt_1", "agt_2"),
  install: fc.constantFrom(null, "acme"),
  connected: fc.boolean(),
  seenAt: fc.option(instants),
  draining: fc.option(fc.constant({ reason: "new disk", since: noon })),
  revokedAt: fc.option(instants),
  slots: fc.option(fc.integer({ min: 1, max: 3 })),
  holds: fc.array(names, { maxLength: 4 }),
});

/** Any facts of a job, the impossible ones too. */
const anyJob: fc.Arbitrary<JobFacts> = fc.record<JobFacts>({
  id: fc.constant("job_1"),
  operation: fc.constantFrom("provision", "build", "sync", "plan", "apply", "destroy"),
  component: fc.constantFrom(null, "web"),
  install: fc.constantFrom(null, "acme"),
  app: fc.constant("guestbook"),
  state: fc.constantFrom(...jobStates),
  since: fc.option(instants),
  createdAt: instants,
  startedAt: fc.option(instants),
  finishedAt: fc.option(instants),
  notBefore: instants,
  startBy: fc.option(instants),
  cancel: fc.option(fc.record({ at: instants, by: fc.option(fc.constant("ada")) })),
  attempts: fc.record({ used: fc.nat(4), max: fc.integer({ min: 1, max: 4 }) }),
  returned: fc.option(
    fc.record({
      reason: fc.string(),
      code: fc.option(fc.constantFrom("older_epoch_alive", "no_slot")),
    }),
  ),
  outcome: fc.option(
    fc.record({
      code: fc.option(fc.constantFrom("lost", "fenced")),
      message: fc.option(fc.string()),
    }),
  ),
  hold: fc.option(
    fc.record({
      install: fc.constant("acme"),
      pause: fc.option(fc.constant(pause)),
      restoredAt: fc.option(instants),
      jobsMax: fc.option(fc.integer({ min: 1, max: 3 })),
      underWay: fc.array(names, { maxLength: 4 }),
    }),
  ),
  leaving: fc.boolean(),
  holder: fc.option(agents),
  queue: fc.record({
    name: fc.constant("ins_1"),
    install: fc.constantFrom(null, "acme"),
    agents: fc.array(agents, { maxLength: 60 }),
    replaced: fc.option(fc.constant({ id: "agt_0", revokedAt: noon })),
    ahead: fc.option(fc.nat(5)),
    first: fc.array(names, { maxLength: 4 }),
  }),
});

test("whatever the facts of a job: unfinished it waits for something named or runs, and waiting it can be unblocked", () => {
  fc.assert(
    fc.property(anyJob, (job) => {
      const why = whyJob(job, now);

      const runs = job.state === "offered" || job.state === "running";
      if (!isFinished(job.state)) assert(why.because.length > 0 || runs);
      if (job.state === "queued" || job.state === "unreachable") assert(why.unblock.length > 0);
      if (job.state === "failed" || job.state === "cancelled") {
        assert.equal(why.firstCause?.jobId, job.id);
        assert(why.unblock.length > 0);
      }
      for (const each of everyLink(why)) {
        assert.notEqual(each.summary, "");
        if (each !== why) assert(each.unblock.length > 0 && each.wait !== null, each.summary);
      }
      assert(depthOf(why) <= depthMax);
    }),
    { numRuns: 1000 },
  );
});

function jobIn(state: JobFacts["state"], changes: Partial<JobFacts>): JobFacts {
  const ended = isFinished(state);
  return sampleJob({
    ...changes,
    state,
    finishedAt: ended ? later : null,
    ...(ended || state === "queued" ? { holder: null } : {}),
  });
}

function chainOf(why: Why): (WaitKind | null)[] {
  const [next] = why.because;
  return next ? [next.wait, ...chainOf(next)] : [];
}

function everyLink(why: Why): Why[] {
  return [why, ...why.because.flatMap(everyLink)];
}

function depthOf(why: Why): number {
  return 1 + Math.max(0, ...why.because.map(depthOf));
}
