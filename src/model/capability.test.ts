/** Which components a sandbox cannot run, and what people are told about each. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { disabledComponents } from "./capability.ts";

test("a component whose needs are not all met is disabled, with the sandbox's own reason", () => {
  const disabled = disabledComponents(
    [
      { name: "web", needs: ["process"], dependencies: [] },
      { name: "bucket", needs: ["process", "terraform"], dependencies: [] },
    ],
    ["process"],
    { terraform: "it is not on the path" },
  );

  assert.deepEqual([...disabled], [["bucket", "needs terraform: it is not on the path"]]);
});

test("what depends on a disabled component is disabled too, however far away", () => {
  const disabled = disabledComponents(
    [
      { name: "far", needs: [], dependencies: ["near"] },
      { name: "near", needs: [], dependencies: ["bucket"] },
      { name: "bucket", needs: ["terraform"], dependencies: [] },
      { name: "other", needs: [], dependencies: [] },
    ],
    [],
    {},
  );

  assert.deepEqual([...disabled.keys()].sort(), ["bucket", "far", "near"]);
  assert.match(disabled.get("far") ?? "", /`near`.*`bucket`.*needs terraform/);
});

test("in any graph, cycles included, the enabled ones have all they need and depend on enabled ones only", () => {
  const names = ["a", "b", "c", "d", "e"];
  const component = fc.record({
    needs: fc.uniqueArray(fc.constantFrom("process", "terraform", "helm")),
    dependencies: fc.uniqueArray(fc.constantFrom(...names)),
  });
  fc.assert(
    fc.property(fc.tuple(...names.map(() => component)), (parts) => {
      const components = parts.map((part, index) => ({ name: names[index] ?? "", ...part }));

      const disabled = disabledComponents(components, ["process"], {});

      for (const { name, needs, dependencies } of components) {
        const runs = needs.every((need) => need === "process");
        const all = dependencies.every((dependency) => !disabled.has(dependency));
        assert.equal(!disabled.has(name), runs && all, name);
      }
    }),
  );
});
