/** Any graph: layers order it, or there is a cycle; never both, never neither. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isFault } from "./fault.ts";
import {
  allDependentsOf,
  dependentsOf,
  findCycle,
  type Graph,
  graphOf,
  topologicalLayers,
} from "./graph.ts";

const names = ["a", "b", "c", "d", "e", "f", "g"];

const anyGraph: fc.Arbitrary<Graph> = fc
  .array(fc.tuple(fc.constantFrom(...names), fc.constantFrom(...names)), { maxLength: 14 })
  .map((edges) => {
    const graph = new Map<string, string[]>(names.map((name) => [name, []]));
    for (const [from, to] of edges) graph.get(from)?.push(to);
    return graph;
  });

test("a graph without a cycle is layered so that everything comes after what it depends on", () => {
  fc.assert(
    fc.property(anyGraph, (graph) => {
      fc.pre(findCycle(graph) === null);

      const layers = topologicalLayers(graph);

      assert.deepEqual(layers.flat().sort(), names);
      const layerOf = new Map(layers.flatMap((layer, at) => layer.map((name) => [name, at])));
      for (const [name, dependencies] of graph) {
        const deepest = Math.max(-1, ...dependencies.map((other) => layerOf.get(other) ?? 99));
        assert.equal(layerOf.get(name), deepest + 1, "the earliest layer it can be in");
      }
    }),
    { numRuns: 500 },
  );
});

test("a cycle is a path along real edges that ends where it began, and cannot be layered", () => {
  fc.assert(
    fc.property(anyGraph, (graph) => {
      const cycle = findCycle(graph);
      fc.pre(cycle !== null);

      assert(cycle.length >= 2 && cycle[0] === cycle.at(-1));
      assert.equal(new Set(cycle).size, cycle.length - 1, "no name but the first comes twice");
      for (let at = 1; at < cycle.length; at++) {
        assert(graph.get(cycle[at - 1] ?? "")?.includes(cycle[at] ?? ""));
      }
      assert.throws(
        () => topologicalLayers(graph),
        (error) => isFault(error, "invalid") && error.message.includes(cycle.join(" → ")),
      );
    }),
    { numRuns: 500 },
  );
});

test("every graph whose edges lead to earlier names has no cycle", () => {
  fc.assert(
    fc.property(anyGraph, (graph) => {
      const forward = new Map([...graph].map(([name, to]) => [name, to.filter((x) => x < name)]));
      assert.equal(findCycle(forward), null);
    }),
  );
});

test("a component that depends on itself is a cycle of one", () => {
  assert.deepEqual(findCycle(new Map([["a", ["a"]]])), ["a", "a"]);
});

test("a chain of ten thousand components is no problem", () => {
  const chain = new Map<string, string[]>();
  for (let at = 0; at < 10_000; at++) chain.set(`c${at}`, at === 0 ? [] : [`c${at - 1}`]);
  assert.equal(findCycle(chain), null);
  chain.set("c0", ["c9999"]);
  assert.equal(findCycle(chain)?.length, 10_001);
});

test("dependents are the direct ones; all dependents go through others", () => {
  const graph = graphOf([
    { name: "database", dependencies: ["elsewhere"] },
    { name: "api", dependencies: ["database"] },
    { name: "web", dependencies: ["api"] },
    { name: "stats", dependencies: ["database"] },
  ]);

  assert.deepEqual(dependentsOf(graph, "database"), ["api", "stats"]);
  assert.deepEqual(allDependentsOf(graph, "database"), ["api", "stats", "web"]);
  assert.deepEqual(allDependentsOf(graph, "web"), []);
  assert.deepEqual(topologicalLayers(graph), [["database"], ["api", "stats"], ["web"]]);
});
