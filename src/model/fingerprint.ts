/**
 * A fingerprint says in one digest what a deploy makes of a component: its artifact, its
 * configuration, and (as keyed hashes, never as values) all that its templates may name. Equal
 * fingerprints mean that there is nothing to do.
 */
import type { ArtifactReference } from "./job.ts";
import { type Digest, digestOfJson, type JsonObject } from "./json.ts";

export interface DesiredComponent {
  readonly name: string;
  readonly type: string;
  readonly config: JsonObject;
  readonly dependencies: readonly string[];
  readonly artifact: ArtifactReference;
}

/** What surrounds a component and may be named by its templates. */
export interface Surroundings {
  readonly inputs: Readonly<Record<string, string>>;
  readonly sandboxHash: string;
  readonly dependencyHashes: Readonly<Record<string, string>>;
}

/** The fingerprint of a component in its surroundings. */
export function fingerprintOf(component: DesiredComponent, surroundings: Surroundings): Digest {
  return digestOfJson({
    version: 1,
    type: component.type,
    artifact: component.artifact.digest,
    config: component.config,
    ...surroundings,
  });
}
