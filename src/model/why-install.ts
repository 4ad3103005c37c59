/**
 * Why a component, a deploy or an install is where it is. Pure.
 *
 * Invariants: a component is explained in full once in an answer, and named after that, so that a graph
 * with many ways to one component stays small; a cycle, which the reader of apps refuses, ends there.
 */
import { type ComponentState, isAtRest } from "./component-states.ts";
import {
  depthMax,
  earliest,
  type FirstCause,
  link,
  tellCause,
  tellSince,
  type Why,
} from "./why.ts";
import type { AgentFacts } from "./why-agent.ts";
import { type HoldFacts, waitsForHold } from "./why-hold.ts";
import { type JobFacts, whyJob } from "./why-job.ts";

export interface ComponentFacts {
  readonly name: string;
  readonly state: ComponentState;
  readonly reason: string | null;
  readonly dependencies: readonly string[];
  /** It is to be removed. */
  readonly leaving: boolean;
  /** Its unfinished job, or that of its build. */
  readonly job: JobFacts | null;
  /** How its newest job failed. */
  readonly failure: FirstCause | null;
  /** A plan that waits for consent. */
  readonly approval: { readonly jobId: string; readonly since: string } | null;
}

export interface InstallFacts {
  readonly name: string;
  readonly app: string;
  readonly state: "provisioning" | "active" | "deleting" | "deleted";
  readonly releaseNumber: number | null;
  readonly deploy: number;
  readonly createdAt: string;
  /** Nothing more happens by itself. */
  readonly settled: boolean;
  /** The server has not looked at the newest change yet. */
  readonly due: boolean;
  readonly hold: HoldFacts;
  readonly agents: readonly AgentFacts[];
  readonly sandbox: { readonly job: JobFacts | null; readonly failure: FirstCause | null };
  readonly components: readonly ComponentFacts[];
}

/** One answer under way: what has been explained in it. */
export interface Telling {
  readonly install: InstallFacts;
  readonly now: Date;
  readonly told: Map<string, Why | null>;
}

/** Begins an answer about an install. */
export function beginTelling(install: InstallFacts, now: Date): Telling {
  return { install, now, told: new Map() };
}

/** Why a component is where it is; null when the install has none of that name. */
export function whyComponent(telling: Telling, name: string, depth = 0): Why | null {
  const component = telling.install.components.find((each) => each.name === name);
  if (!component) return null;
  const before = telling.told.get(name);
  if (before) return { ...before, because: [] };
  if (before === null || depth >= depthMax) return nameOnly(telling, component);
  telling.told.set(name, null);
  const why = explain(telling, component, depth);
  telling.told.set(name, why);
  return why;
}

function explain(telling: Telling, component: ComponentFacts, depth: number): Why {
  const { install, now } = telling;
  const { name, state, reason } = component;
  const base = { subject: { kind: "component" as const, id: `${install.name}/${name}` }, state };
  if (component.job && state !== "failed") {
    const job = whyJob(component.job, now);
    const wait = component.job.operation === "build" ? ("build" as const) : ("job" as const);
    const summary = `${name} is ${state}: ${job.summary}`;
    return link({ ...base, summary, because: [{ ...job, wait }], since: job.since });
  }
  if (state === "failed") return explainFailure(telling, component, base);
  if (state === "disabled") {
    return link({
      ...base,
      summary: `${name} is left out: the sandbox of ${install.name} cannot run it${reason ? `: ${reason}` : ""}.`,
      unblock: [
        `Give the sandbox of ${install.name} what it lacks, then \`landfall deploy ${install.name}\`.`,
      ],
    });
  }
  if (isAtRest(state)) {
    const at = state === "active" ? ` at release ${install.releaseNumber ?? "–"}` : "";
    return link({ ...base, summary: `${name} is ${state}${at}.` });
  }
  const because = waitsOf(telling, component, depth);
  const [first] = because;
  return link({
    ...base,
    summary: `${name} is ${state}: ${first?.summary ?? ""}`,
    because,
    since: first?.since ?? null,
  });
}

function explainFailure(
  { install }: Telling,
  { name, failure, reason }: ComponentFacts,
  base: Pick<Why, "subject" | "state">,
): Why {
  const again =
    install.state === "deleting"
      ? `\`landfall installs delete ${install.name}\``
      : `\`landfall deploy ${install.name}\``;
  const what = failure ? tellCause(failure) : `${reason ?? "its job failed"}.`;
  return link({
    ...base,
    summary: `${name} failed: ${what}`,
    since: failure?.at ?? null,
    firstCause: failure,
    unblock: [
      `Correct the cause, then try again: ${again}.`,
      ...(failure ? [`Its log: \`landfall logs ${failure.jobId}\`.`] : []),
    ],
  });
}

/** What a component without a job of its own waits for; never empty. */
function waitsOf(telling: Telling, component: ComponentFacts, depth: number): Why[] {
  const { install } = telling;
  const waits = waitsForHold(install.hold, install.agents);
  if (component.leaving) {
    const users = install.components.filter(
      (other) => other.dependencies.includes(component.name) && other.state !== "removed",
    );
    waits.push(...others(telling, users, "removal", depth));
  } else {
    if (install.state === "provisioning") waits.push(sandboxWait(telling));
    if (install.releaseNumber === null) waits.push(releaseWait(telling));
    const needed = install.components.filter(
      ({ name, state }) => component.dependencies.includes(name) && state !== "active",
    );
    waits.push(...others(telling, needed, "dependency", depth));
    if (component.approval) waits.push(approvalWait(install, component, component.approval));
  }
  return waits.length > 0 ? waits : [decisionWait(install)];
}

function others(
  telling: Telling,
  components: readonly ComponentFacts[],
  wait: "dependency" | "removal",
  depth: number,
): Why[] {
  return components.flatMap(({ name }) => {
    const why = whyComponent(telling, name, depth + 1);
    if (!why) return [];
    const unblock =
      why.unblock.length > 0
        ? why.unblock
        : [`Nothing to do: ${name} is ${why.state}, wait for it.`];
    return [{ ...why, wait, unblock }];
  });
}

/** A component that is not explained here, because it was before or because the chain is too long. */
function nameOnly({ install }: Telling, { name, state }: ComponentFacts): Why {
  return link({
    subject: { kind: "component", id: `${install.name}/${name}` },
    state,
    summary: `${name} is ${state}.`,
    unblock: [`See \`landfall why ${install.name}/${name}\`.`],
    firstCause: causeBelow(install, name),
  });
}

/** The first failure of a component or of anything that it depends on. */
export function causeBelow(install: InstallFacts, name: string): FirstCause | null {
  const byName = new Map(install.components.map((component) => [component.name, component]));
  const seen = new Set<string>();
  const causes: FirstCause[] = [];
  for (const open = [name]; open.length > 0; ) {
    const component = byName.get(open.pop() ?? "");
    if (!component || seen.has(component.name)) continue;
    seen.add(component.name);
    if (component.state === "failed" && component.failure) causes.push(component.failure);
    if (component.state !== "active") open.push(...component.dependencies);
  }
  if (install.sandbox.failure) causes.push(install.sandbox.failure);
  return earliest(causes);
}

/** The sandbox is not there yet, or could not be made or removed. */
export function sandboxWait({ install, now }: Telling): Why {
  const { job, failure } = install.sandbox;
  const base = {
    subject: { kind: "install" as const, id: install.name },
    wait: "sandbox" as const,
  };
  if (job) {
    const inner = whyJob(job, now);
    const summary = `The sandbox of ${install.name} is not ready: ${inner.summary}`;
    return link({
      ...base,
      state: install.state,
      summary,
      because: [{ ...inner, wait: "job" }],
      since: inner.since,
      unblock: inner.unblock.length > 0 ? [] : ["Nothing to do: its job is under way."],
    });
  }
  if (failure) {
    const again =
      install.state === "deleting"
        ? `\`landfall installs delete ${install.name}\``
        : `\`landfall deploy ${install.name}\``;
    return link({
      ...base,
      state: "failed",
      summary: `The sandbox of ${install.name} failed: ${tellCause(failure)}`,
      since: failure.at,
      firstCause: failure,
      unblock: [`Correct the cause, then try again: ${again}.`],
    });
  }
  const summary = `The sandbox of ${install.name} is not ready yet.`;
  const holds = waitsForHold(install.hold, install.agents);
  const because = holds.length > 0 ? holds : [decisionWait(install)];
  return link({ ...base, state: install.state, summary, because });
}

/** The app was never built whole. */
export function releaseWait({ install, now }: Telling): Why {
  const builds = install.components.flatMap(({ job }) => (job?.operation === "build" ? [job] : []));
  const failed = install.components.flatMap(({ state, failure }) =>
    state === "failed" && failure ? [failure] : [],
  );
  return link({
    subject: { kind: "install", id: install.name },
    wait: "release",
    state: "unreleased",
    summary: `${install.app} has no release yet: ${builds.length > 0 ? `${builds.length} builds are under way` : failed.length > 0 ? "a build failed" : "nothing of it was built"}.`,
    because: builds.map((job) => ({ ...whyJob(job, now), wait: "build" as const })),
    unblock: [
      builds.length > 0
        ? "Nothing to do: the release is made when its builds are there."
        : `Build it: \`landfall sync\` of ${install.app}.`,
    ],
    firstCause: earliest(failed),
  });
}

function approvalWait(
  install: InstallFacts,
  { name }: ComponentFacts,
  { jobId, since }: { jobId: string; since: string },
): Why {
  return link({
    subject: { kind: "job", id: jobId },
    wait: "approval",
    state: "unapproved",
    summary: `The plan of ${name} waits for an approval${tellSince(since)}.`,
    since,
    unblock: [
      `Look at the plan of ${name} in ${install.name} and approve it: \`landfall jobs show ${jobId}\`.`,
    ],
  });
}

/** Between two jobs: the server is to decide on the next one. */
export function decisionWait(install: InstallFacts): Why {
  return link({
    subject: { kind: "install", id: install.name },
    wait: "decision",
    state: install.due ? "due" : "idle",
    summary: install.due
      ? `The server is about to decide on the next jobs of ${install.name}.`
      : `The server made no further job for it in deploy ${install.deploy}.`,
    unblock: [decideUnblock(install)],
  });
}

function decideUnblock(install: InstallFacts): string {
  if (install.due) return "Nothing to do: it takes moments.";
  return install.state === "deleting"
    ? `Ask again: \`landfall installs delete ${install.name}\`.`
    : `Ask again: \`landfall deploy ${install.name}\`.`;
}
