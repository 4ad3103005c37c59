/**
 * The component types that an app may use, as data.
 *
 * A type says what it needs of a sandbox; a sandbox says what it has; a mismatch is refused when an
 * install is created, not when a job fails. Nothing but this table knows which types there are.
 */

export interface ComponentType {
  readonly name: string;
  /** Capabilities that the sandbox must have. */
  readonly needs: readonly string[];
  /** Outputs that every component of this type gives. */
  readonly outputs: readonly string[];
}

/** The types that this version can deploy. */
export const componentTypes: readonly ComponentType[] = [
  { name: "process", needs: ["process"], outputs: ["url", "port"] },
  { name: "job", needs: ["process"], outputs: [] },
  { name: "terraform_module", needs: ["terraform"], outputs: [] },
  /** Does what its configuration says (wait, fail, give outputs); for tests. */
  { name: "noop", needs: [], outputs: [] },
];

/** Types that the app format knows, and that this version cannot deploy yet. */
export const laterComponentTypes: readonly string[] = [
  "helm_chart",
  "kubernetes_manifest",
  "docker_build",
  "container_image",
  "external_image",
  "pulumi",
];

/** The type of this name, or null when this version cannot deploy it. */
export function findComponentType(name: string): ComponentType | null {
  return componentTypes.find((type) => type.name === name) ?? null;
}
