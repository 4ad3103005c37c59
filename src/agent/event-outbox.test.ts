/** Events from real files through a real journal, over connections and agents that are cut at any point. */
import assert from "node:assert/strict";
import { appendFileSync, existsSync, readdirSync, rmSync } from "node:fs";
import { appendFile, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import type { JobId } from "../model/ids.ts";
import type { Digest } from "../model/json.ts";
import { type JobEvent, lastSeqOf } from "../protocol/events.ts";
import { eventsFileOf } from "../protocol/job-folder.ts";
import { quiet } from "./agent-bench.ts";
import { createEventOutbox, type EventOutbox } from "./event-outbox.ts";
import { readEvents, startMark } from "./events-file.ts";
import { type Journal, type JournalJob, openJournal } from "./journal.ts";

// In memory where that is possible: what a flush is worth is shown with a real agent and kill -9.
const base = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();
const root = await mkdtemp(join(base, "landfall-outbox-"));
after(() => rm(root, { recursive: true, force: true }));
const makeFolder = () => mkdtemp(join(root, "job-"));

/** More than enough to send all that a run of the property can have written. */
const roundsMax = 3000;

const job: JournalJob = {
  key: { jobId: `job_${"1".repeat(24)}` as JobId, epoch: { generation: 1, n: 1 } },
  component: null,
  manifest: "manifest",
  manifestDigest: `sha256:${"a".repeat(64)}` as Digest,
  deadlineMs: 0,
  silenceMs: null,
  endReason: null,
  graceMs: 0,
};

const logEvent = (seq: number, line = "x"): JobEvent => ({
  seq,
  at: "2030-01-01T00:00:00Z",
  type: "log",
  stream: "stdout",
  line,
});
const zero = logEvent(0);
const log = (seq: number, line = "x") => `${JSON.stringify(logEvent(seq, line))}\n`;
const outcomeLine = (seq: number) =>
  `${JSON.stringify({ seq, at: "2030", type: "outcome", outcome: { status: "succeeded" } })}\n`;

/** A server that stores what follows, refuses a hole, and can be set back. */
function createServer() {
  let events: JobEvent[] = [];
  const last = () => {
    const newest = events.at(-1);
    return newest ? lastSeqOf(newest) : 0;
  };
  return {
    last,
    events: () => events,
    receive(sent: JobEvent[]): true {
      for (const event of sent) {
        const stored = last();
        if (lastSeqOf(event) <= stored) continue;
        assert.equal(event.seq, stored + 1, "neither a hole nor an overlap");
        assert(lastSeqOf(event) >= event.seq);
        events.push(event);
      }
      return true;
    },
    /** As a server restored from an older copy. */
    forgetAfter(seq: number): void {
      events = events.filter((event) => lastSeqOf(event) <= seq);
    },
  };
}

/** A writer of segments that keeps few of them, as an executor does whose agent is away. */
function createWriter(folder: string, segmentsMax: number) {
  let segment = 1;
  let seq = 0;
  let rest = "";
  const append = (text: string) => {
    appendFileSync(join(folder, eventsFileOf(segment)), rest + text);
    rest = "";
  };
  return {
    written: () => seq,
    write(count: number): void {
      let text = "";
      for (let index = 0; index < count; index++) text += log(++seq);
      append(text);
    },
    /** A line of which only a part is there for now. */
    tear(): void {
      const line = log(++seq, "torn");
      append(line.slice(0, 20));
      rest = line.slice(20);
    },
    turnOver(): void {
      append("");
      segment += 1;
      append("");
      if (segment > segmentsMax) {
        rmSync(join(folder, eventsFileOf(segment - segmentsMax)), { force: true });
      }
    },
    dropped(count: number): void {
      const gap = { seq: seq + 1, at: "2030", type: "gap", last: seq + count, reason: "full" };
      seq += count;
      append(`${JSON.stringify(gap)}\n`);
    },
    finish: () => append(outcomeLine(++seq)),
  };
}

const action = fc.oneof(
  fc.record({ do: fc.constant("write" as const), count: fc.integer({ min: 1, max: 1500 }) }),
  fc.record({ do: fc.constantFrom("turn over" as const, "import" as const, "tear" as const) }),
  fc.record({ do: fc.constant("dropped" as const), count: fc.integer({ min: 1, max: 5000 }) }),
  fc.record({ do: fc.constant("pump" as const), limit: fc.integer({ min: 0, max: 3 }) }),
  fc.record({ do: fc.constant("acknowledge" as const), back: fc.integer({ min: 0, max: 700 }) }),
  fc.record({ do: fc.constant("reconnect" as const), protocol: fc.constantFrom(1, 2) }),
  fc.record({ do: fc.constant("restore" as const), lost: fc.integer({ min: 0, max: 2000 }) }),
  fc.record({ do: fc.constantFrom("crash" as const, "settle" as const) }),
);

test("whatever happens on the way, the server gets every number once and in order, as an event or inside a gap, and the outcome last", async () => {
  const given = fc.record({
    actions: fc.array(action, { maxLength: 30, size: "max" }),
    jobSpoolBytesMax: fc.constantFrom(20_000, 200_000, 64 * 1024 * 1024),
    segmentsMax: fc.integer({ min: 1, max: 5 }),
  });
  await fc.assert(
    fc.asyncProperty(given, async ({ actions, jobSpoolBytesMax, segmentsMax }) => {
      const folder = await makeFolder();
      const path = join(folder, "journal.db");
      const open = () => openJournal(path, { ...quiet, jobSpoolBytesMax });
      let journal = open();
      await journal.add(job);
      const newOutbox = () => createEventOutbox(journal.spoolOf(job.key), folder);
      let outbox = newOutbox();
      const server = createServer();
      const writer = createWriter(folder, segmentsMax);
      let protocol = 2;
      outbox.resume(0);
      for (const step of actions) {
        if (step.do === "write") writer.write(step.count);
        else if (step.do === "tear") writer.tear();
        else if (step.do === "turn over") writer.turnOver();
        else if (step.do === "dropped") writer.dropped(step.count);
        else if (step.do === "import") await outbox.importNew();
        else if (step.do === "pump") {
          let left = step.limit;
          outbox.pump(protocol, (events) => left-- > 0 && server.receive(events));
        } else if (step.do === "acknowledge") {
          outbox.acknowledge(Math.max(0, server.last() - step.back));
        } else if (step.do === "reconnect") {
          protocol = step.protocol;
          outbox.resume(server.last());
        } else if (step.do === "restore") {
          server.forgetAfter(server.last() - step.lost);
          outbox.resume(server.last());
        } else if (step.do === "settle") await settle(journal);
        else {
          journal.close();
          journal = open();
          outbox = newOutbox();
          outbox.resume(server.last());
        }
      }
      writer.finish();
      for (let round = 0; !outbox.state().outcomeAcknowledged && round < roundsMax; round++) {
        await outbox.importNew();
        outbox.pump(protocol, server.receive);
        outbox.acknowledge(server.last());
      }

      assert.equal(server.last(), writer.written());
      assert.equal(server.events().at(-1)?.type, "outcome");
      assert.equal(server.events().filter(({ type }) => type === "outcome").length, 1);
      assert(outbox.state().drained);
      journal.close();
      await rm(folder, { recursive: true });
    }),
    { numRuns: 60 },
  );
});

test("under pressure the oldest lines give way to one gap that grows, and the outcome stays", async () => {
  await withOutbox({ jobSpoolBytesMax: 100_000 }, async ({ folder, outbox, journal }) => {
    const line = "y".repeat(100);
    for (let first = 1; first <= 10_000; first += 1000) {
      const lines = Array.from({ length: 1000 }, (_, index) => log(first + index, line));
      await appendFile(join(folder, "events.ndjson"), lines.join(""));
      while (await outbox.importNew());
      assert(journal.spooledBytes() <= 100_000);
    }
    await appendFile(join(folder, "events.ndjson"), outcomeLine(10_001));
    await outbox.importNew();
    const rows = journal.spoolOf(job.key).read(0, 10_000, 1_000_000);
    assert(rows.every((row, index) => row.seq === lastSeqOf(rows[index - 1] ?? zero) + 1));
    const server = createServer();

    outbox.resume(0);
    outbox.pump(2, server.receive);

    const [gap, ...rest] = server.events();
    assert.equal(gap?.type === "gap" && gap.seq, 1);
    assert.match(gap?.type === "gap" ? gap.reason : "", /spool was full/);
    assert(rest.every(({ type }) => type !== "gap"));
    assert(rest.length > 300);
    assert.equal(rest.at(-1)?.type, "outcome");
  });
});

test("an outcome larger than the whole spool stays, and all lines before it give way", async () => {
  await withOutbox({ jobSpoolBytesMax: 5000 }, async ({ folder, outbox, journal }) => {
    const outcome = { status: "failed", message: "m".repeat(10_000) };
    const last = JSON.stringify({ seq: 21, at: "2030", type: "outcome", outcome });
    const lines = Array.from({ length: 20 }, (_, index) => log(index + 1));

    await writeFile(join(folder, "events.ndjson"), `${lines.join("")}${last}\n`);
    await outbox.importNew();

    const rows = journal.spoolOf(job.key).read(0, 100, 100_000);
    assert.deepEqual(
      rows.map((event) => [event.type, event.seq, lastSeqOf(event)]),
      [
        ["gap", 1, 20],
        ["outcome", 21, 21],
      ],
    );
  });
});

test("an outcome that was acknowledged stays until its job goes, and is told again to a server that lost it", async () => {
  await withOutbox({}, async ({ folder, outbox, journal }) => {
    await writeFile(join(folder, "events.ndjson"), log(1) + outcomeLine(2));
    await outbox.importNew();
    outbox.resume(0);
    outbox.pump(2, () => true);
    outbox.acknowledge(2);
    await until(() => journal.spoolOf(job.key).read(0, 9, 9999).length === 1);
    const sent: JobEvent[] = [];

    outbox.resume(1);
    outbox.pump(2, (events) => sent.push(...events) > 0);

    assert.deepEqual(
      sent.map(({ type, seq }) => [type, seq]),
      [["outcome", 2]],
    );
    await journal.remove(job.key);
    assert.deepEqual(journal.spoolOf(job.key).read(0, 9, 9999), []);
  });
});

test("over all jobs it is the largest that gives way, and a small job keeps its lines", async () => {
  await withOutbox(
    { spoolBytesMax: 1_000_000, jobSpoolBytesMax: 4_000_000 },
    async ({ folder, outbox, journal }) => {
      const small = { ...job, key: { ...job.key, epoch: { generation: 1, n: 2 } } };
      await journal.add(small);
      const spool = journal.spoolOf(small.key);
      const lines = Array.from({ length: 100 }, (_, index) => logEvent(index + 1));
      await spool.append(lines, { ...startMark, seq: 101 });
      const text = Array.from({ length: 20_000 }, (_, index) => log(index + 1, "y".repeat(100)));

      await writeFile(join(folder, "events.ndjson"), text.join(""));
      while (await outbox.importNew());

      assert(journal.spooledBytes() <= 1_000_000);
      assert(journal.spooledBytes() > 700_000);
      assert.deepEqual(spool.read(0, 1000, 1_000_000), lines);
    },
  );
});

test("a server of protocol 1 is told a gap as one short line for each of its numbers", async () => {
  await withOutbox({}, async ({ folder, outbox }) => {
    const gap = { seq: 1, at: "2030", type: "gap", last: 2500, reason: "full" };
    await writeFile(
      join(folder, "events.ndjson"),
      `${JSON.stringify(gap)}\n${log(2501)}${outcomeLine(2502)}`,
    );
    const server = createServer();
    outbox.resume(0);
    await outbox.importNew();

    outbox.pump(1, server.receive);

    assert.equal(server.events().length, 2502);
    assert(server.events().every(({ type }) => type !== "gap"));
  });
});

test("a gap that the server knows a part of begins after that part", async () => {
  await withOutbox({}, async ({ folder, outbox }) => {
    const gap = { seq: 1, at: "2030", type: "gap", last: 9, reason: "full" };
    await writeFile(join(folder, "events.ndjson"), `${JSON.stringify(gap)}\n`);
    await outbox.importNew();
    const sent: JobEvent[] = [];

    outbox.resume(4);
    outbox.pump(2, (events) => sent.push(...events) > 0);

    assert.deepEqual(sent, [{ ...gap, seq: 5 }]);
  });
});

test("closed segments go once they are imported, and those that an executor removed are a gap", async () => {
  await withOutbox({}, async ({ folder, outbox }) => {
    const write = (segment: number, text: string) =>
      writeFile(join(folder, eventsFileOf(segment)), text);
    await write(1, log(1) + log(2));
    await outbox.importNew();
    await write(4, log(7));
    await write(5, log(8));
    const server = createServer();
    outbox.resume(0);

    await outbox.importNew();
    assert.equal(outbox.state().mark.seq, 3, "segment 2 may still come");
    await rm(join(folder, eventsFileOf(1)));
    await outbox.importNew();
    outbox.pump(2, server.receive);

    assert.deepEqual(
      server.events().map((event) => [event.type, event.seq, lastSeqOf(event)]),
      [
        ["log", 1, 1],
        ["log", 2, 2],
        ["gap", 3, 6],
        ["log", 7, 7],
        ["log", 8, 8],
      ],
    );
    const left = readdirSync(folder).filter((name) => name.startsWith("events"));
    assert.deepEqual(left, [eventsFileOf(5)]);
  });
});

test("what was acknowledged is gone from the journal, and a server that lost it is told a gap", async () => {
  await withOutbox({}, async ({ folder, outbox, journal }) => {
    await writeFile(join(folder, "events.ndjson"), log(1) + log(2) + log(3));
    outbox.resume(0);
    await outbox.importNew();
    outbox.pump(2, () => true);
    outbox.acknowledge(2);
    await until(() => journal.spoolOf(job.key).read(0, 9, 9999).length === 1);
    const sent: JobEvent[] = [];

    outbox.resume(1);
    outbox.pump(2, (events) => sent.push(...events) > 0);

    assert.deepEqual(
      sent.map((event) => [event.type, event.seq, lastSeqOf(event)]),
      [
        ["gap", 2, 2],
        ["log", 3, 3],
      ],
    );
  });
});

test("no more than four batches are under way, and an acknowledgement reaches no further than what was sent", async () => {
  await withOutbox({}, async ({ folder, outbox }) => {
    await writeFile(
      join(folder, "events.ndjson"),
      Array.from({ length: 9000 }, (_, index) => log(index + 1)).join(""),
    );
    while (await outbox.importNew());
    const sizes: number[] = [];
    outbox.resume(0);

    outbox.acknowledge(9000);
    outbox.pump(2, (events) => sizes.push(events.length) > 0);

    assert.equal(sizes.length, 4);
    assert(sizes.every((size) => size <= 1000));
    assert.equal(outbox.state().drained, false);
  });
});

test("a file with a hole, with something else in it, or that goes on after the outcome is corrupt there", async () => {
  const outcome = outcomeLine(2);
  for (const [text, good] of [
    [log(1) + log(3), 1],
    [log(2), 0],
    [`${log(1)}{}\n${log(2)}`, 1],
    [`${log(1)}${outcome}${log(3)}`, 2],
    [`${log(1)}{"seq":2,"at":"x","type":"gap","last":1,"reason":""}\n`, 1],
  ] as const) {
    const folder = await makeFolder();
    await writeFile(join(folder, "events.ndjson"), text);

    const read = await readEvents(folder, startMark);

    assert.equal(read.events.length, good, text);
    assert.notEqual(read.corrupt, null);
  }
});

test("an outcome put in the executor's place follows its last whole line, once, and is remembered", async () => {
  await withOutbox({}, async ({ folder, outbox, journal }) => {
    await writeFile(join(folder, "events.ndjson"), `${log(1)}${log(2)}{"seq":3,"at`);
    await outbox.importNew();

    await outbox.finish({ status: "cancelled", code: "cancelled" }, new Date(0));
    await outbox.finish({ status: "failed" }, new Date(0));
    const server = createServer();
    outbox.resume(0);
    outbox.pump(2, server.receive);

    const outcome = { status: "cancelled", code: "cancelled" };
    assert.deepEqual(server.events().at(-1), {
      seq: 3,
      at: "1970-01-01T00:00:00.000Z",
      type: "outcome",
      outcome,
    });
    const { epoch } = job.key;
    assert.deepEqual(
      [...journal.recallPages()],
      [{ jobs: [{ manifest: "manifest", epoch, outcome }], more: false }],
    );
  });
});

test("events are never read through a link that a job laid", async () => {
  const folder = await makeFolder();
  await writeFile(join(root, "secret"), log(1));
  await symlink(join(root, "secret"), join(folder, "events.ndjson"));

  await assert.rejects(readEvents(folder, startMark), { code: "ELOOP" });
});

interface Bench {
  readonly folder: string;
  readonly journal: Journal;
  readonly outbox: EventOutbox;
}

async function withOutbox(
  limits: { spoolBytesMax?: number; jobSpoolBytesMax?: number },
  act: (bench: Bench) => Promise<void>,
): Promise<void> {
  const folder = await makeFolder();
  const journal = openJournal(join(folder, "journal.db"), { ...quiet, ...limits });
  await journal.add(job);
  await act({ folder, journal, outbox: createEventOutbox(journal.spoolOf(job.key), folder) });
  journal.close();
}

/** Lets the journal remove what is acknowledged, which it does a little later. */
async function settle(journal: Journal): Promise<void> {
  let isOver = false;
  const timer = setTimeout(() => {
    isOver = true;
  }, 300);
  await until(() => isOver || journal.spooledBytes() === 0);
  clearTimeout(timer);
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 15_000;
  while (!condition()) {
    assert(performance.now() < deadline, "waited in vain");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
