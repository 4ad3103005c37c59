/**
 * What an install's sandbox can run, and which components it therefore cannot.
 *
 * Invariant: reconcile and every view of an install ask this one function, so that what people are
 * told is disabled is exactly what is never started.
 */

/** The part of a component's configuration that decides whether it can run somewhere. */
export interface NeedyComponent {
  readonly name: string;
  readonly needs: readonly string[];
  readonly dependencies: readonly string[];
}

/**
 * The components that a sandbox with these capabilities cannot run, each with the reason: a need
 * that is not met, or a component it depends on (however far away) that is disabled itself.
 */
export function disabledComponents(
  components: readonly NeedyComponent[],
  capabilities: readonly string[],
  missing: Readonly<Record<string, string>>,
): Map<string, string> {
  const reasons = new Map<string, string>();
  const dependents = new Map<string, string[]>();
  for (const { name, needs, dependencies } of components) {
    const unmet = needs.filter((need) => !capabilities.includes(need));
    if (unmet.length > 0) reasons.set(name, describeNeeds(unmet, missing));
    for (const dependency of dependencies) {
      dependents.set(dependency, [...(dependents.get(dependency) ?? []), name]);
    }
  }
  const spreading = [...reasons.keys()];
  for (let name = spreading.shift(); name !== undefined; name = spreading.shift()) {
    for (const dependent of dependents.get(name) ?? []) {
      if (reasons.has(dependent)) continue;
      reasons.set(dependent, `depends on \`${name}\`, which is disabled: ${reasons.get(name)}`);
      spreading.push(dependent);
    }
  }
  return reasons;
}

function describeNeeds(
  unmet: readonly string[],
  missing: Readonly<Record<string, string>>,
): string {
  const parts = unmet.map((need) =>
    Object.hasOwn(missing, need) && missing[need] ? `${need}: ${missing[need]}` : need,
  );
  return `needs ${parts.join("; ")}`;
}
