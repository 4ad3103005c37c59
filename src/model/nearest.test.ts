import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { didYouMean, editDistance, suggest } from "./nearest.ts";

test("a small slip finds the name that was meant", () => {
  const candidates = ["dependencies", "env_vars", "command", "type"];

  assert.equal(suggest("dependancies", candidates), "dependencies");
  assert.equal(suggest("env_var", candidates), "env_vars");
  assert.equal(suggest("tpye", candidates), "type");
  assert.equal(didYouMean("comand", candidates), " Did you mean `command`?");
});

test("a word that is nothing like any candidate gets no suggestion", () => {
  assert.equal(suggest("zebra", ["dependencies", "type"]), null);
  assert.equal(didYouMean("zebra", []), "");
});

test("the distance is zero only for equal names, and the same both ways", () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 12 }), fc.string({ maxLength: 12 }), (a, b) => {
      assert.equal(editDistance(a, b) === 0, a === b);
      assert.equal(editDistance(a, b), editDistance(b, a));
    }),
  );
});
