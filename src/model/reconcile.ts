/**
 * Reconcile: from what an install should be and what it is, the next jobs. Pure: no I/O, no clock.
 *
 *   provisioning   provision of the sandbox, once
 *   active         per component, in the order of the graph, as parallel as it allows:
 *                    sync ──> plan ──> (approved) ──> apply ──> up to date
 *                    what the release no longer has is destroyed, dependents first
 *   deleting       destroy of every component, dependents first, then of the sandbox
 *   held           nothing, whatever the state
 *
 * Invariants, each with a property test: it ends; a component is never planned or applied before all
 * that it depends on is up to date; never two jobs of one component at once; where nothing is to be
 * done it asks for nothing. A failed job is not repeated in the same deploy, unless what it was made
 * for has changed since, or the plan had gone stale (and then a few times at most).
 */
import { type DesiredComponent, fingerprintOf } from "./fingerprint.ts";
import type { ArtifactReference, Operation, OutcomeCode } from "./job.ts";
import type { Digest, JsonObject } from "./json.ts";

/** How often a plan that went stale is made again within one deploy. */
export const replansMax = 3;

export interface ActiveComponent {
  readonly name: string;
  /** Empty after an apply that failed: what is there now is unknown. */
  readonly fingerprint: Digest | "";
  readonly outputsHash: string;
  readonly dependencies: readonly string[];
  readonly artifact: ArtifactReference;
  /** As it was applied: this is how it is destroyed. */
  readonly type: string;
  readonly config: JsonObject;
}

/** The newest finished job of a component (or of the sandbox) in the current deploy. */
export interface FinishedJob {
  readonly operation: Operation;
  readonly status: "succeeded" | "failed" | "cancelled";
  readonly code: OutcomeCode | null;
  readonly fingerprint: Digest | null;
  readonly artifactDigest: Digest | null;
  /** A succeeded plan: what it may be applied by. */
  readonly approval: Approval | null;
  /** How many jobs of the component ended with a stale plan or stale values in this deploy. */
  readonly staleCount: number;
}

export interface Approval {
  readonly planDigest: Digest;
  readonly approvalDigest: Digest;
}

export interface InstallSituation {
  readonly state: "provisioning" | "active" | "deleting" | "deleted";
  /** A person paused it, or the server was restored and its agent has not told yet: nothing is begun. */
  readonly held: boolean;
  readonly inputs: Readonly<Record<string, string>>;
  /** Keyed hash of the sandbox's outputs; null until it is provisioned. */
  readonly sandboxHash: string | null;
  /** Components of the desired release that the sandbox can run. */
  readonly desired: readonly DesiredComponent[];
  readonly active: readonly ActiveComponent[];
  /** Digests in the install's own registry. */
  readonly synced: ReadonlySet<Digest>;
  /** Names of components with an unfinished job; null stands for the sandbox. */
  readonly underWay: ReadonlySet<string | null>;
  readonly finished: ReadonlyMap<string | null, FinishedJob>;
}

export interface NextJob {
  readonly operation: Operation;
  readonly component: string | null;
  readonly fingerprint: Digest | null;
  /** Keyed hashes that the outputs of what it depends on must have. */
  readonly dependencies: Readonly<Record<string, { outputsHash: string }>>;
  readonly approval: Approval | null;
}

/** The jobs to make now. Calling it again before they are made gives the same ones. */
export function reconcile(situation: InstallSituation): NextJob[] {
  if (situation.held) return [];
  switch (situation.state) {
    case "provisioning":
      return provisionSandbox(situation);
    case "active":
      return [...deployComponents(situation), ...removeComponents(situation)];
    case "deleting":
      return deleteInstall(situation);
    case "deleted":
      return [];
  }
}

/** What each desired component should become; null while something it depends on is not up to date. */
export function desiredFingerprints(situation: InstallSituation): Map<string, Digest | null> {
  const fingerprints = new Map<string, Digest | null>();
  const desired = new Map(situation.desired.map((component) => [component.name, component]));
  const active = new Map(situation.active.map((component) => [component.name, component]));

  function visit(name: string): Digest | null {
    const known = fingerprints.get(name);
    if (known !== undefined) return known;
    fingerprints.set(name, null); // A cycle never becomes up to date; the reader refuses one anyway.
    const component = desired.get(name);
    if (!component || situation.sandboxHash === null) return null;
    const dependencyHashes: Record<string, string> = {};
    for (const dependency of component.dependencies) {
      const fingerprint = visit(dependency);
      const found = active.get(dependency);
      if (fingerprint === null || found?.fingerprint !== fingerprint) return null;
      dependencyHashes[dependency] = found.outputsHash;
    }
    const fingerprint = fingerprintOf(component, {
      inputs: situation.inputs,
      sandboxHash: situation.sandboxHash,
      dependencyHashes,
    });
    fingerprints.set(name, fingerprint);
    return fingerprint;
  }

  for (const name of desired.keys()) visit(name);
  return fingerprints;
}

function provisionSandbox({ underWay, finished, sandboxHash }: InstallSituation): NextJob[] {
  if (sandboxHash !== null || underWay.has(null) || finished.has(null)) return [];
  return [job("provision", null)];
}

function deployComponents(situation: InstallSituation): NextJob[] {
  const fingerprints = desiredFingerprints(situation);
  const active = new Map(situation.active.map((component) => [component.name, component]));
  return situation.desired.flatMap((component) => {
    const fingerprint = fingerprints.get(component.name) ?? null;
    const isUpToDate =
      fingerprint !== null && active.get(component.name)?.fingerprint === fingerprint;
    if (isUpToDate || situation.underWay.has(component.name)) return [];
    const dependencies = Object.fromEntries(
      component.dependencies.map((name) => [
        name,
        { outputsHash: active.get(name)?.outputsHash ?? "" },
      ]),
    );
    const next = nextStep(situation, component, fingerprint);
    return next ? [{ ...next, dependencies: next.operation === "sync" ? {} : dependencies }] : [];
  });
}

function nextStep(
  situation: InstallSituation,
  component: DesiredComponent,
  fingerprint: Digest | null,
): NextJob | null {
  const last = situation.finished.get(component.name);
  if (!situation.synced.has(component.artifact.digest)) {
    const hasFailed =
      last?.operation === "sync" && last.artifactDigest === component.artifact.digest;
    return hasFailed ? null : job("sync", component.name);
  }
  if (fingerprint === null) return null;
  const plan = job("plan", component.name, fingerprint);
  if (!last || last.operation === "sync" || last.operation === "destroy") return plan;
  if (last.code === "stale_plan" || last.code === "stale_values") {
    return last.staleCount <= replansMax ? plan : null;
  }
  if (last.fingerprint !== fingerprint) return plan;
  if (last.operation !== "plan" || last.status !== "succeeded" || !last.approval) return null;
  return { ...job("apply", component.name, fingerprint), approval: last.approval };
}

function removeComponents(situation: InstallSituation): NextJob[] {
  const desired = new Set(situation.desired.map((component) => component.name));
  return destroyable(situation, (name) => !desired.has(name));
}

function deleteInstall(situation: InstallSituation): NextJob[] {
  const jobs = destroyable(situation, () => true);
  const isEmpty = situation.active.length === 0 && situation.underWay.size === 0;
  if (!isEmpty || jobs.length > 0) return jobs;
  return situation.finished.get(null)?.operation === "destroy" ? [] : [job("destroy", null)];
}

/** Unwanted components that nothing active depends on, and whose destroy has not failed in this deploy. */
function destroyable(
  { active, underWay, finished }: InstallSituation,
  isUnwanted: (name: string) => boolean,
): NextJob[] {
  const needed = new Set(active.flatMap((component) => component.dependencies));
  return active
    .filter(({ name }) => isUnwanted(name) && !needed.has(name) && !underWay.has(name))
    .filter(({ name }) => finished.get(name)?.operation !== "destroy")
    .map(({ name }) => job("destroy", name));
}

function job(
  operation: Operation,
  component: string | null,
  fingerprint: Digest | null = null,
): NextJob {
  return { operation, component, fingerprint, dependencies: {}, approval: null };
}
