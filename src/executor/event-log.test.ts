/** Events are numbered, bounded and ended by one outcome. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { JobEvent, logLineBytesMax } from "../protocol/events.ts";
import { eventsFileOf, jobFiles, segmentOf } from "../protocol/job-folder.ts";
import { cut, eventLimits, openEventLog } from "./event-log.ts";
import { startHeartbeat } from "./heartbeat.ts";
import { createRedactor } from "./redaction.ts";

const now = () => new Date("2030-01-01T00:00:00Z");
const inTime = new AbortController().signal;

test("events are numbered from 1 without a hole, and nothing follows the outcome", () =>
  inFolder(async (folder) => {
    const log = openEventLog(folder, createRedactor(), now);
    log.log("stdout", "one\ntwo");
    log.reportProgress({ label: "copy", done: 1, total: 2, unit: "steps" });
    await log.finish({ status: "succeeded" }, inTime);
    await log.finish({ status: "failed" }, inTime);
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
    const logBytes = 8 * logLineBytesMax;
    const log = openEventLog(folder, createRedactor(), now, { ...eventLimits, logBytes });
    const line = "x".repeat(logLineBytesMax * 2);
    for (let count = 0; count < 12; count++) log.log("stdout", line);
    await log.finish({ status: "succeeded" }, inTime);

    const text = await readFile(join(folder, "events.ndjson"), "utf8");
    assert(text.length < logBytes + 4 * logLineBytesMax);
    assert.equal(text.split("further lines are dropped").length, 2);
    assert(text.trimEnd().endsWith('"outcome":{"status":"succeeded"}}'));
  }));

test("what a message says is redacted", () =>
  inFolder(async (folder) => {
    const redactor = createRedactor();
    redactor.add("hunter22");
    const log = openEventLog(folder, redactor, now);
    await log.finish({ status: "failed", message: "wrong: hunter22" }, inTime);

    const [event] = await readEvents(folder);
    assert.equal(event?.type === "outcome" && event.outcome.message, "wrong: ***");
  }));

test("a folder with events is refused", () =>
  inFolder(async (folder) => {
    await writeFile(join(folder, "events.ndjson"), "{}\n");

    assert.throws(() => openEventLog(folder, createRedactor(), now), { code: "conflict" });
  }));

test("events go on over segments, of which the oldest closed ones give way, and the outcome is the last line of the last", () =>
  inFolder(async (folder) => {
    const limits = { ...eventLimits, segmentBytes: 1000, folderBytes: 5000 };
    const log = openEventLog(folder, createRedactor(), now, limits);
    for (let line = 1; line <= 200; line++) log.log("stdout", `line ${line}`);
    await log.finish({ status: "succeeded" }, inTime);

    const files = await readdir(folder);
    const segments = files.map(segmentOf).filter((segment) => segment !== null);
    const last = Math.max(...segments);
    const events = (
      await Promise.all(ordered(segments).map((each) => readEvents(folder, each)))
    ).flat();
    assert.equal(segments.length, 6);
    assert.equal(last - Math.min(...segments), 5);
    assert.equal(events.at(-1)?.type, "outcome");
    assert.equal(events.at(-1)?.seq, 201);
    assert(events.every((event, index) => event.seq === 202 - events.length + index));
    assert(!files.includes(jobFiles.ballast));
  }));

test("segments that the agent took away meanwhile are not missed", () =>
  inFolder(async (folder) => {
    const limits = { ...eventLimits, segmentBytes: 1 };
    const log = openEventLog(folder, createRedactor(), now, limits);
    for (let line = 1; line <= 10; line++) {
      log.log("stdout", `line ${line}`);
      if (line > 2) await rm(join(folder, eventsFileOf(line - 2)), { force: true });
    }
    await log.finish({ status: "succeeded" }, inTime);

    assert.equal((await readEvents(folder, 11)).at(-1)?.seq, 11);
  }));

test("on a full disk lines are dropped and counted in a gap, and the outcome is written all the same", () => {
  const answer = onSmallDisk(`
    for (let line = 1; line <= 20000; line++) log.log("stdout", "line " + line);
    const full = readdirSync(".").includes("ballast");
    await log.finish({ status: "failed", message: "m".repeat(20_000) }, inTime);
    console.log(JSON.stringify({ full, ...lines() }));`);

  const { full, numbers, gaps, last } = JSON.parse(answer);
  assert.equal(full, true);
  assert.equal(last.type, "outcome");
  assert.equal(last.seq, 20_001);
  assert.equal(gaps.length, 1);
  assert.match(gaps[0].reason, /^The disk was full: \d+ lines were dropped\.$/);
  assert.equal(numbers, 20_001);
});

test("lines go on after a gap once there is room again", () => {
  const answer = onSmallDisk(`
    writeFileSync("other", "");
    try { for (;;) appendFileSync("other", "x".repeat(4096)); } catch {}
    for (let line = 1; line <= 1000; line++) log.log("stdout", "line " + line);
    rmSync("other");
    log.log("stdout", "there is room");
    await log.finish({ status: "succeeded" }, inTime);
    console.log(JSON.stringify(lines()));`);

  const { numbers, gaps, last } = JSON.parse(answer);
  assert.equal(gaps.length, 1);
  assert.equal(gaps[0].last, 1000);
  assert.deepEqual([last.type, last.seq, numbers], ["outcome", 1002, 1002]);
});

test("an outcome for which there is no room at all is tried again until there is", () => {
  const answer = onSmallDisk(`
    const gone = readdirSync(".").includes("ballast") && rmSync("ballast");
    writeFileSync("other", "");
    try { for (;;) appendFileSync("other", "x".repeat(4096)); } catch {}
    for (let line = 1; line <= 100; line++) log.log("stdout", "line " + line);
    setTimeout(() => rmSync("other"), 700);
    await log.finish({ status: "succeeded" }, inTime);
    console.log(JSON.stringify(lines()));`);

  const { numbers, last } = JSON.parse(answer);
  assert.deepEqual([last.type, last.seq, numbers], ["outcome", 101, 101]);
});

test("a heartbeat is there from the start and changes, also more often where the limit is short", () =>
  inFolder(async (folder) => {
    const file = join(folder, jobFiles.heartbeat);
    const limits = { startSeconds: null, finishSeconds: 9, silenceSeconds: 1 };
    const stop = startHeartbeat(folder, limits, () => new Date());
    const seen = new Set([(await stat(file)).mtimeMs]);
    const deadline = performance.now() + 10_000;

    while (seen.size < 3 && performance.now() < deadline) {
      await sleep(10);
      seen.add((await stat(file)).mtimeMs);
    }
    stop();

    assert.equal(seen.size, 3);
  }));

test("a cut never splits a character", () => {
  const shown = cut("ä".repeat(100), 50);

  assert(Buffer.byteLength(shown) <= 50);
  assert.match(shown, /^ä+ … \(cut\)$/);
});

/** Runs over an event log in a folder of half a megabyte, a file system of its own; gives what it printed. */
function onSmallDisk(script: string): string {
  const url = (path: string) => JSON.stringify(new URL(path, import.meta.url).href);
  const program = `
    import { appendFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
    import { eventLimits, openEventLog } from ${url("./event-log.ts")};
    import { createRedactor } from ${url("./redaction.ts")};
    const inTime = new AbortController().signal;
    const limits = { ...eventLimits, segmentBytes: 100_000, folderBytes: 10_000_000, ballastBytes: 65_536 };
    const log = openEventLog(".", createRedactor(), () => new Date(0), limits);
    function lines() {
      const files = readdirSync(".").filter((name) => name.startsWith("events"));
      const all = files.flatMap((name) => readFileSync(name, "utf8").trim().split("\\n"))
        .filter((line) => line !== "").map((line) => JSON.parse(line)).sort((a, b) => a.seq - b.seq);
      let numbers = 0;
      for (const event of all) if (event.seq === numbers + 1) numbers = event.last ?? event.seq;
      return { numbers, gaps: all.filter(({ type }) => type === "gap"), last: all.at(-1) };
    }
    ${script}`;
  const folder = mkdtempSync(join(tmpdir(), "landfall-full-"));
  const user = process.getuid?.() === 0 ? [] : ["--map-root-user"];
  const mount = 'mount -t tmpfs -o size=512k none "$0" && cd "$0" && exec "$@"';
  const node = ["--disable-warning=ExperimentalWarning", "--input-type=module", "-e", program];
  try {
    return execFileSync(
      "unshare",
      [...user, "--mount", "sh", "-c", mount, folder, process.execPath, ...node],
      { encoding: "utf8", timeout: 60_000 },
    );
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const ordered = (numbers: readonly number[]) => [...numbers].sort((a, b) => a - b);

async function readEvents(folder: string, segment = 1): Promise<JobEvent[]> {
  const text = await readFile(join(folder, eventsFileOf(segment)), "utf8");
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
