/**
 * The dependency graph of an app's components, as pure functions.
 *
 * A graph maps each component to what it depends on. Edges to names outside the graph are ignored
 * here: whether every name exists is checked where the app is read. Every order is deterministic.
 */
import { Fault } from "./fault.ts";

/** Component → the components that it depends on. */
export type Graph = ReadonlyMap<string, readonly string[]>;

/** The graph of anything that has a name and dependencies. */
export function graphOf(
  components: Iterable<{ readonly name: string; readonly dependencies: readonly string[] }>,
): Graph {
  return new Map(Array.from(components, ({ name, dependencies }) => [name, dependencies]));
}

/**
 * Components in layers: each depends only on earlier layers, and is in the earliest layer it can be
 * in. Names are sorted within a layer. Refuses a graph with a cycle.
 */
export function topologicalLayers(graph: Graph): string[][] {
  const waiting = new Map<string, Set<string>>();
  for (const name of graph.keys()) waiting.set(name, new Set(dependenciesOf(graph, name)));
  const layers: string[][] = [];
  while (waiting.size > 0) {
    const layer = [...waiting].filter(([, open]) => open.size === 0).map(([name]) => name);
    if (layer.length === 0) {
      const cycle = findCycle(graph) ?? [];
      throw new Fault(
        "invalid",
        `Expected components that can be ordered, got the cycle ${cycle.join(" → ")}. Remove one of its dependencies.`,
      );
    }
    for (const name of layer) waiting.delete(name);
    for (const open of waiting.values()) for (const name of layer) open.delete(name);
    layers.push(layer.sort());
  }
  return layers;
}

/** A cycle as a path that ends where it began (`a`, `b`, `a`), or null when there is none. */
export function findCycle(graph: Graph): string[] | null {
  const done = new Set<string>();
  for (const start of [...graph.keys()].sort()) {
    const cycle = findCycleFrom(graph, start, done);
    if (cycle) return cycle;
  }
  return null;
}

/** Depth first with its own stack, so that a long chain cannot exhaust the call stack. */
function findCycleFrom(graph: Graph, start: string, done: Set<string>): string[] | null {
  const path: { name: string; open: string[] }[] = [];
  const onPath = new Set<string>();
  const enter = (name: string) => {
    path.push({ name, open: dependenciesOf(graph, name).reverse() });
    onPath.add(name);
  };
  if (!done.has(start)) enter(start);
  for (let top = path.at(-1); top; top = path.at(-1)) {
    const next = top.open.pop();
    if (next === undefined) {
      path.pop();
      onPath.delete(top.name);
      done.add(top.name);
    } else if (onPath.has(next)) {
      const names = path.map((step) => step.name);
      return [...names.slice(names.indexOf(next)), next];
    } else if (!done.has(next)) enter(next);
  }
  return null;
}

/** The components that name this one as a dependency, sorted. */
export function dependentsOf(graph: Graph, name: string): string[] {
  return [...graph.keys()].filter((other) => graph.get(other)?.includes(name)).sort();
}

/** All components that depend on this one, directly or through others, sorted; never itself. */
export function allDependentsOf(graph: Graph, name: string): string[] {
  const found = new Set<string>([name]);
  const open = [name];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    for (const dependent of dependentsOf(graph, next)) {
      if (!found.has(dependent)) open.push(dependent);
      found.add(dependent);
    }
  }
  found.delete(name);
  return [...found].sort();
}

function dependenciesOf(graph: Graph, name: string): string[] {
  return [...new Set(graph.get(name) ?? [])].filter((other) => graph.has(other)).sort();
}
