/**
 * Judges what components say about each other, once all are known: references, dependencies, cycles.
 */
import type { Position } from "../model/fault.ts";
import { findCycle } from "../model/graph.ts";
import { didYouMean } from "../model/nearest.ts";
import type { ProblemList } from "./problem-list.ts";
import type { ReadComponent } from "./read-component.ts";
import type { PlacedReference } from "./template-references.ts";

export interface KnownNames {
  readonly components: ReadonlyMap<string, ReadComponent>;
  readonly inputs: ReadonlySet<string>;
}

/** What `.nuon` may hold. */
const sections = [
  "id",
  "name",
  "install",
  "inputs",
  "sandbox",
  "domain",
  "install_stack",
  "components",
  "actions",
  "secrets",
  "app",
  "org",
  "runner",
  "cloud_account",
  "labels",
];

/** Component → what it depends on, each with the place that says so. */
export type DependencyPlaces = Map<string, Map<string, Position>>;

/** The dependencies of every component, listed and implied; faults are noted. */
export function resolveDependencies(known: KnownNames, problems: ProblemList): DependencyPlaces {
  const dependencies: DependencyPlaces = new Map();
  for (const component of known.components.values()) {
    const own = new Map<string, Position>();
    dependencies.set(component.name, own);
    for (const { name, position } of component.listed) {
      checkDependency(component, name, position, known, problems);
      if (name !== component.name && known.components.has(name)) own.set(name, position);
    }
    for (const reference of component.references) {
      checkReference(reference, known, problems);
      const [section, name, member] = reference.path;
      if (section !== "components" || member !== "outputs" || name === undefined) continue;
      if (name === component.name) {
        if (!reference.optional) reportSelf(name, reference.position, problems);
      } else if (known.components.has(name) && !own.has(name)) own.set(name, reference.position);
    }
  }
  reportCycles(dependencies, problems);
  return dependencies;
}

function checkDependency(
  component: ReadComponent,
  name: string,
  position: Position,
  known: KnownNames,
  problems: ProblemList,
): void {
  if (name === component.name) reportSelf(name, position, problems);
  else if (!known.components.has(name)) {
    const hint = didYouMean(name, known.components.keys());
    problems.error(
      position,
      `Expected a component of this app, got \`${name}\`, which does not exist.${hint}`,
    );
  } else if (component.listed.filter((other) => other.name === name).length > 1) {
    problems.warn(position, `Expected each dependency once, got \`${name}\` more than once.`);
  }
}

function reportSelf(name: string, position: Position, problems: ProblemList): void {
  problems.error(
    position,
    `Expected \`${name}\` to depend on others, got itself. Remove the reference.`,
  );
}

/** A reference that can lead nowhere is an error here, before anything runs. */
export function checkReference(
  { path, position, optional }: PlacedReference,
  known: KnownNames,
  problems: ProblemList,
): void {
  if (optional) return;
  const [section = "", name, member] = path;
  const fail = (what: string, got: string, names: Iterable<string>) =>
    problems.error(
      position,
      `Expected ${what}, got \`${got}\`, which does not exist.${didYouMean(got, names)}`,
    );
  if (section !== "" && !sections.includes(section))
    fail(
      "something that templates see",
      `.nuon.${section}`,
      sections.map((known) => `.nuon.${known}`),
    );
  else if (section === "components" && name !== undefined)
    checkOutput(path, position, known, problems);
  else if (section === "inputs" && name !== undefined && name !== "inputs") {
    problems.error(
      position,
      `Expected \`.nuon.inputs.inputs.${name}\`, got \`.nuon.inputs.${name}\`. Write \`inputs\` twice.`,
    );
  } else if (
    (section === "inputs" || (section === "install" && name === "inputs")) &&
    member !== undefined
  ) {
    if (!known.inputs.has(member))
      fail("an input that is declared in `inputs.toml`", member, known.inputs);
  }
}

function checkOutput(
  [, name = "", member, output]: readonly string[],
  position: Position,
  known: KnownNames,
  problems: ProblemList,
): void {
  const component = known.components.get(name);
  if (!component) {
    const hint = didYouMean(name, known.components.keys());
    problems.error(
      position,
      `Expected a component of this app, got \`${name}\`, which does not exist.${hint}`,
    );
    return;
  }
  const names = component.outputNames;
  if (member !== "outputs" || output === undefined || !names || names.includes(output)) return;
  problems.error(
    position,
    `Expected an output of \`${name}\` (${names.map((other) => `\`${other}\``).join(", ")}), got \`${output}\`, which it does not declare.${didYouMean(output, names)}`,
  );
}

/** Every cycle once: after one is told, the edge that closes it is taken out. */
function reportCycles(dependencies: DependencyPlaces, problems: ProblemList): void {
  const graph = new Map([...dependencies].map(([name, own]) => [name, [...own.keys()]]));
  for (let cycle = findCycle(graph); cycle; cycle = findCycle(graph)) {
    const [first = "", second = ""] = cycle;
    problems.error(
      dependencies.get(first)?.get(second) ?? null,
      `Expected components that can be ordered, got the cycle ${cycle.map((name) => `\`${name}\``).join(" → ")}. Remove one of these dependencies.`,
    );
    graph.set(
      first,
      (graph.get(first) ?? []).filter((name) => name !== second),
    );
  }
}
