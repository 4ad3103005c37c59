/**
 * One install as people see it: pure, from rows that were read together.
 *
 * Invariant: `settled` means that nothing more will happen by itself.
 */
import type { AppConfig, ComponentConfig } from "../../model/app-config.ts";
import { disabledComponents } from "../../model/capability.ts";
import type { ArtifactReference, Operation, Outcome, Output } from "../../model/job.ts";
import type { ComponentView, InstallView } from "../../protocol/api.ts";
import type { Progress } from "../context.ts";
import { capabilitiesOf } from "../reconcile-install.ts";
import { componentState, describeOutcome, type JobFact } from "./component-state.ts";

export interface InstallRow {
  readonly id: string;
  readonly name: string;
  readonly app_id: string;
  readonly app: string;
  readonly state: InstallView["state"];
  readonly sandbox_type: string;
  readonly sandbox: { readonly outputs: Readonly<Record<string, Output>> } | null;
  readonly deploy: number;
  readonly due: boolean;
  /** It had an unfinished job at the very moment when `due` was read: one snapshot for both. */
  readonly busy: boolean;
  readonly created_at: Date;
  readonly release_id: string | null;
  readonly release_number: number | null;
  readonly release_components: Readonly<
    Record<string, { readonly artifact: ArtifactReference }>
  > | null;
  /** Of the desired release, or the app's newest while there is none. */
  readonly config_number: number | null;
  readonly agent_id: string | null;
  readonly agent_connected: boolean;
  readonly agent_seen_at: Date | null;
  readonly drain_reason: string | null;
  readonly agent_jobs: number;
  readonly agent_version: string | null;
  readonly paused_at: Date | null;
  readonly paused_by: string | null;
  readonly pause_reason: string | null;
  readonly conflicts: readonly {
    readonly component: string;
    readonly key: string;
    readonly job_id: string | null;
    readonly seen_at: string;
  }[];
  readonly recall_since: Date | null;
  readonly jobs_max: number | null;
}

export interface DeployedRow {
  readonly install_id: string;
  readonly component: string;
  readonly type: string;
  readonly dependencies: readonly string[];
  readonly artifact: ArtifactReference;
  /** Empty after an apply that failed: what is there now is unknown. */
  readonly fingerprint: string;
  readonly outputs: Readonly<Record<string, Output>>;
  readonly release_id: string | null;
}

export interface InstallJobRow {
  readonly install_id: string;
  readonly id: string;
  readonly component: string | null;
  readonly operation: Operation;
  readonly state: string;
  readonly outcome: Outcome | null;
}

export interface NewestBuildRow {
  readonly component: string;
  readonly job_id: string;
  readonly state: "running" | "succeeded" | "failed";
  readonly outcome: Outcome | null;
  readonly digest: string | null;
}

/** Everything that is known of one install. Jobs are those of its current deploy, newest first. */
export interface InstallFacts {
  readonly install: InstallRow;
  readonly config: AppConfig | null;
  readonly deployed: readonly DeployedRow[];
  readonly jobs: readonly InstallJobRow[];
  readonly builds: readonly NewestBuildRow[];
  readonly progress: ReadonlyMap<string, Progress>;
}

/** The view of one install. */
export function viewInstall(facts: InstallFacts): InstallView {
  const { install, jobs } = facts;
  const components = viewComponents(facts);
  const sandboxJob = jobs.find((job) => job.component === null);
  const sandboxFailure = outcomeReason(sandboxJob?.outcome ?? null);
  return {
    id: install.id,
    name: install.name,
    app: install.app,
    state: install.state,
    settled: isSettled(facts, components, sandboxFailure !== null),
    reason: sandboxFailure,
    sandboxType: install.sandbox_type,
    releaseNumber: install.release_number,
    deploy: install.deploy,
    agent:
      install.agent_id === null
        ? null
        : {
            id: install.agent_id,
            connected: install.agent_connected,
            seenAt: install.agent_seen_at?.toISOString() ?? null,
            draining: install.drain_reason,
            jobs: install.agent_jobs,
            version: install.agent_version,
          },
    pause:
      install.paused_at === null
        ? null
        : {
            reason: install.pause_reason ?? "",
            by: install.paused_by ?? "",
            since: install.paused_at.toISOString(),
          },
    restoredAt: install.recall_since?.toISOString() ?? null,
    jobsMax: install.jobs_max,
    conflicts: install.conflicts.map(({ component, key, job_id, seen_at }) => ({
      component,
      key,
      jobId: job_id,
      since: new Date(seen_at).toISOString(),
    })),
    components,
    createdAt: install.created_at.toISOString(),
  };
}

function isSettled(
  { install, jobs }: InstallFacts,
  components: readonly ComponentView[],
  sandboxFailed: boolean,
): boolean {
  if (install.state === "deleted") return true;
  // Jobs were read a moment later: between two jobs of a component they may all have ended.
  if (install.due || install.busy || jobs.some((job) => job.outcome === null)) return false;
  if (sandboxFailed || components.some(({ state }) => state === "failed")) return true;
  return (
    install.state === "active" &&
    install.release_id !== null &&
    components.every(({ state }) => ["active", "disabled", "removed"].includes(state))
  );
}

function viewComponents(facts: InstallFacts): ComponentView[] {
  const { install, config, deployed } = facts;
  const leaving = install.state === "deleting" || install.state === "deleted";
  const components = config?.components ?? [];
  const disabled = findDisabled(install, components);
  const upToDate = findUpToDate(facts, disabled);
  const views = components.map((component) =>
    viewComponent(facts, {
      ...component,
      wanted: !leaving,
      disabledReason: disabled.get(component.name) ?? null,
      upToDate: upToDate.has(component.name),
      unblocked:
        install.state === "active" && component.dependencies.every((name) => upToDate.has(name)),
    }),
  );
  const known = new Set(components.map(({ name }) => name));
  for (const row of deployed) {
    if (known.has(row.component)) continue;
    const { component: name, type, dependencies } = row;
    const gone = { wanted: false, disabledReason: null, upToDate: false, unblocked: true };
    views.push(viewComponent(facts, { name, type, dependencies, ...gone }));
  }
  return explainWaiting(views, install);
}

interface Subject extends Pick<ComponentConfig, "name" | "type" | "dependencies"> {
  readonly wanted: boolean;
  readonly disabledReason: string | null;
  readonly upToDate: boolean;
  readonly unblocked: boolean;
}

function viewComponent(facts: InstallFacts, subject: Subject): ComponentView {
  const { install, jobs, progress } = facts;
  const { name, type, wanted, disabledReason, upToDate, unblocked } = subject;
  const row = facts.deployed.find(({ component }) => component === name);
  const own = jobs.filter(({ component }) => component === name);
  const build = facts.builds.find(({ component }) => component === name);
  const derived = componentState({
    wanted,
    disabledReason,
    deployed: row !== undefined,
    upToDate,
    unblocked,
    due: install.due,
    released: install.release_id !== null,
    build: build
      ? { jobId: build.job_id, state: build.state, reason: outcomeReason(build.outcome) }
      : null,
    unfinished: factOf(own.find(({ outcome }) => outcome === null)),
    lastFinished: factOf(own.find(({ outcome }) => outcome !== null)),
  });
  const desired = install.release_components?.[name]?.artifact.digest ?? build?.digest ?? null;
  const step = derived.jobId === null ? undefined : progress.get(derived.jobId);
  const active = derived.state === "active";
  return {
    name,
    type,
    ...derived,
    dependencies: [...subject.dependencies],
    artifactDigest: (active ? row?.artifact.digest : null) ?? desired,
    outputs: { ...row?.outputs },
    progress: step && !active ? { done: step.done, total: step.total } : null,
  };
}

/**
 * What reconcile knows exactly by fingerprint, seen from outside: deployed by the desired release or
 * with its artifact, and so is all that it depends on. A job that reconcile makes besides shows itself.
 */
function findUpToDate(
  { install, config, deployed }: InstallFacts,
  disabled: ReadonlyMap<string, string>,
): Set<string> {
  const rows = new Map(deployed.map((row) => [row.component, row]));
  const components = new Map(config?.components.map((component) => [component.name, component]));
  const known = new Map<string, boolean>();

  function visit(name: string): boolean {
    const found = known.get(name);
    if (found !== undefined) return found;
    known.set(name, false);
    const row = rows.get(name);
    const desired = install.release_components?.[name]?.artifact.digest;
    const upToDate =
      row !== undefined &&
      row.fingerprint !== "" &&
      !disabled.has(name) &&
      (row.release_id === install.release_id || row.artifact.digest === desired) &&
      (components.get(name)?.dependencies ?? []).every(visit);
    known.set(name, upToDate);
    return upToDate;
  }
  return new Set([...components.keys()].filter(visit));
}

/** Before the sandbox is there nothing is known to be missing. */
function findDisabled(
  { sandbox }: InstallRow,
  components: readonly ComponentConfig[],
): Map<string, string> {
  return sandbox
    ? disabledComponents(components, ...capabilitiesOf(sandbox.outputs))
    : new Map<string, string>();
}

function factOf(row: InstallJobRow | undefined): JobFact | null {
  if (!row) return null;
  const { id, operation, outcome } = row;
  return { id, operation, outcome, unreachable: row.state === "unreachable" };
}

function outcomeReason(outcome: Outcome | null): string | null {
  return outcome && outcome.status !== "succeeded" ? describeOutcome(outcome) : null;
}

function explainWaiting(views: readonly ComponentView[], install: InstallRow): ComponentView[] {
  const states = new Map(views.map(({ name, state }) => [name, state]));
  return views.map((view) => {
    if (view.state !== "waiting" || view.reason !== null) return view;
    if (install.release_id === null) return { ...view, reason: "waits for a release of the app" };
    if (install.state === "provisioning") return { ...view, reason: "waits for the sandbox" };
    const blocking = view.dependencies
      .filter((name) => states.has(name) && states.get(name) !== "active")
      .map((name) => (states.get(name) === "failed" ? `\`${name}\`, which failed` : `\`${name}\``));
    if (blocking.length > 0) return { ...view, reason: `waits for ${blocking.join(", ")}` };
    return install.paused_at === null
      ? view
      : { ...view, reason: `waits for the pause to end: ${install.pause_reason}` };
  });
}
