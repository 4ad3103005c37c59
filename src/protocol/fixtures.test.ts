/**
 * What has landed stays readable: recorded documents, frames and events of each version must be read by
 * today's schemas, whole. A change of the protocol adds a version; these files never change.
 */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import type { z } from "zod";
import { Keyset, LeaseGrant, Manifest } from "./documents.ts";
import { JobEvent, OutcomeSchema } from "./events.ts";
import { AgentFrame, EffectFrame, protocolVersions, ServerFrame } from "./frames.ts";

const schemas: Readonly<Record<string, z.ZodType>> = {
  Keyset,
  Manifest,
  LeaseGrant,
  ServerFrame,
  EffectFrame,
  AgentFrame,
  JobEvent,
  Outcome: OutcomeSchema,
};

test("recorded documents, frames and events of every version are still read, with nothing left out", () => {
  const files = globSync(join(import.meta.dirname, "fixtures/version-*.json"));
  assert.equal(files.length, protocolVersions.length);
  for (const file of files) {
    const recorded: Record<string, unknown[]> = JSON.parse(readFileSync(file, "utf8"));
    assert.deepEqual(Object.keys(recorded).sort(), Object.keys(schemas).sort(), basename(file));
    for (const [name, values] of Object.entries(recorded)) {
      for (const value of values) assert.deepEqual(schemas[name]?.parse(value), value, name);
    }
  }
});

test("every kind of frame is among the recorded ones", () => {
  const recorded: Record<string, { type: string }[]> = JSON.parse(
    readFileSync(
      join(import.meta.dirname, `fixtures/version-${protocolVersions.at(-1)}.json`),
      "utf8",
    ),
  );
  for (const [name, schema] of Object.entries({ ServerFrame, EffectFrame, AgentFrame, JobEvent })) {
    const kinds = schema.options.map((option) => [...option.shape.type.values][0]);
    assert.deepEqual((recorded[name] ?? []).map(({ type }) => type).sort(), kinds.sort(), name);
  }
});
