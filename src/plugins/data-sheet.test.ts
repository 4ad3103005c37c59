/** What the model says of component types is what their plugins say of themselves. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { componentTypes } from "../model/component-type.ts";
import { plugin as job } from "./job/index.ts";
import { plugin as noop } from "./noop/index.ts";
import { plugin as process } from "./process/index.ts";
import { plugin as local } from "./sandbox-local/index.ts";
import { plugin as terraform } from "./terraform-module/index.ts";

const plugins = [process, job, terraform, noop];

test("every component type has its plugin, with the same needs", () => {
  assert.deepEqual(
    plugins.map(({ sheet }) => ({ name: sheet.name, needs: sheet.needs })),
    componentTypes.map(({ name, needs }) => ({ name, needs })),
  );
});

test("a data sheet lists exactly the operations that its plugin has", () => {
  for (const { sheet, operations } of [...plugins, local]) {
    assert.deepEqual([...sheet.operations].sort(), Object.keys(operations).sort(), sheet.name);
  }
});
