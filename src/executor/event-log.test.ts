/** Events are numbered, bounded and ended by one outcome. */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { JobEvent, logLineBytesMax } from "../protocol/events.ts";
import { cut, logBytesMax, openEventLog } from "./event-log.ts";
import { createRedactor } from "./redaction.ts";

const now = () => new Date("2030-01-01T00:00:00Z");

test("events are numbered from 1 without a hole, and nothing follows the outcome", () =>
  inFolder(async (folder) => {
    const log = openEventLog(folder, createRedactor(), now);
    log.log("stdout", "one\ntwo");
    log.reportProgress({ label: "copy", done: 1, total: 2, unit: "steps" });
    log.finish({ status: "succeeded" });
    log.finish({ status: "failed" });
    log.log("stdout", "late");

    const events = await readEvents(folder);
    assert.deepEqual(
      events.map((event) => [event.seq, event.type]),
      [
        [1, "log"],
        [2, "log"],
        [3, "progress"],
        [4, "outcome"],
      ],
    );
  }));

test("long lines are cut, and a log without end is stopped once", () =>
  inFolder(async (folder) => {
    const log = openEventLog(folder, createRedactor(), now);
    const line = "x".repeat(logLineBytesMax * 2);
    for (let count = 0; count < (logBytesMax / logLineBytesMax) * 1.1; count++)
      log.log("stdout", line);
    log.finish({ status: "succeeded" });

    const text = await readFile(join(folder, "events.ndjson"), "utf8");
    assert(text.length < logBytesMax + 4 * logLineBytesMax);
    assert.equal(text.split("further lines are dropped").length, 2);
    assert(text.trimEnd().endsWith('"outcome":{"status":"succeeded"}}'));
  }));

test("what a message says is redacted", () =>
  inFolder(async (folder) => {
    const redactor = createRedactor();
    redactor.add("hunter22");
    openEventLog(folder, redactor, now).finish({ status: "failed", message: "wrong: hunter22" });

    const [event] = await readEvents(folder);
    assert.equal(event?.type === "outcome" && event.outcome.message, "wrong: ***");
  }));

test("a folder with events is refused", () =>
  inFolder(async (folder) => {
    await writeFile(join(folder, "events.ndjson"), "{}\n");

    assert.throws(() => openEventLog(folder, createRedactor(), now), { code: "conflict" });
  }));

test("a cut never splits a character", () => {
  const shown = cut("ä".repeat(100), 50);

  assert(Buffer.byteLength(shown) <= 50);
  assert.match(shown, /^ä+ … \(cut\)$/);
});

async function readEvents(folder: string): Promise<JobEvent[]> {
  const text = await readFile(join(folder, "events.ndjson"), "utf8");
  return text
    .trim()
    .split("\n")
    .map((line) => JobEvent.parse(JSON.parse(line)));
}

async function inFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "landfall-events-"));
  try {
    await use(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
