/** Which isolation is chosen; what each does is in the launcher's suite. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { chooseIsolation } from "./isolation.ts";

const nowhere = { PATH: "/nonexistent" };

test("where neither bubblewrap nor namespaces can be had, a plain process does, with the reason", async () => {
  const { isolation, fallbackReason } = await chooseIsolation("auto", nowhere);

  assert.equal(isolation, "plain");
  assert.match(fallbackReason ?? "", /bubblewrap does not work here/);
});

test("a configuration that demands bubblewrap is refused where it does not run", async () => {
  await assert.rejects(chooseIsolation("bubblewrap", nowhere), { code: "unavailable" });
});
