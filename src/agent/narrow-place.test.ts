/** What each operation sees of its place. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Place } from "../protocol/job-folder.ts";
import { narrowPlace, writableFolders } from "./narrow-place.ts";

const place: Place = {
  storeDirectory: "/store",
  registry: { url: "http://127.0.0.1:1", username: "u", password: "p" },
  supervisorDirectory: "/supervisor",
  installsDirectory: "/installs",
  programs: { agent: ["a"], registry: ["r"], executor: ["e"] },
};
const component = { name: "web" };

test("a build sees no install, no store and no registry's password", () => {
  const seen = narrowPlace(place, { operation: "build", component });

  assert.deepEqual(writableFolders(seen), []);
  assert.equal(seen.registry, null);
});

test("a sync sees the install's registry, and neither store nor supervisor", () => {
  const seen = narrowPlace(place, { operation: "sync", component });

  assert.deepEqual(writableFolders(seen), []);
  assert.equal(seen.registry?.password, "p");
});

for (const operation of ["plan", "apply", "destroy"] as const) {
  test(`a component's ${operation} sees store and supervisor, and no other install`, () => {
    const seen = narrowPlace(place, { operation, component });

    assert.deepEqual(writableFolders(seen), ["/store", "/supervisor"]);
  });
}

test("only the sandbox's own operations see the folder of installs", () => {
  const seen = narrowPlace(place, { operation: "provision", component: null });

  assert.deepEqual(writableFolders(seen), ["/installs"]);
});
