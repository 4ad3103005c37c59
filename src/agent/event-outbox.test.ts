/** Events from a real file, over connections that are cut at any point. */
import assert from "node:assert/strict";
import { appendFile, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import type { JobEvent } from "../protocol/events.ts";
import { createEventOutbox } from "./event-outbox.ts";
import { appendOutcome, readEvents, readLastEvent, startMark } from "./events-file.ts";

const root = await mkdtemp(join(tmpdir(), "landfall-outbox-"));
after(() => rm(root, { recursive: true, force: true }));
const makeFolder = () => mkdtemp(join(root, "job-"));

/** More than enough to send all that a run of the property can have written. */
const roundsMax = 1000;

const log = (seq: number, line = "x") =>
  `${JSON.stringify({ seq, at: "2030-01-01T00:00:00Z", type: "log", stream: "stdout", line })}\n`;

test("every event reaches the server once and in order, wherever connections are cut", async () => {
  const action = fc.oneof(
    fc.record({ do: fc.constant("write" as const), count: fc.integer({ min: 1, max: 1500 }) }),
    fc.record({ do: fc.constant("tear" as const) }),
    fc.record({ do: fc.constant("pump" as const), limit: fc.integer({ min: 0, max: 3 }) }),
    fc.record({ do: fc.constant("acknowledge" as const), back: fc.integer({ min: 0, max: 700 }) }),
    fc.record({ do: fc.constant("cut" as const), lost: fc.integer({ min: 0, max: 2000 }) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 15, size: "max" }), async (actions) => {
      const folder = await makeFolder();
      const file = join(folder, "events.ndjson");
      const outbox = createEventOutbox(folder);
      const server: number[] = [];
      let written = 0;
      let torn = "";
      const receive = (events: JobEvent[]) => {
        for (const { seq } of events) {
          assert(
            seq <= server.length + 1,
            `no hole before ${seq}, the server has ${server.length}`,
          );
          if (seq > server.length) server.push(seq);
        }
        return true;
      };
      outbox.resume(0);
      for (const step of actions) {
        if (step.do === "write") {
          let text = torn && log(++written, "torn").slice(torn.length);
          torn = "";
          for (let index = 0; index < step.count; index++) text += log(++written);
          await appendFile(file, text);
        } else if (step.do === "tear" && torn === "") {
          torn = log(written + 1, "torn").slice(0, 20);
          await appendFile(file, torn);
        } else if (step.do === "pump") {
          let left = step.limit;
          await outbox.pump((events) => left-- > 0 && receive(events));
        } else if (step.do === "acknowledge") {
          outbox.acknowledge(Math.max(0, server.length - step.back));
        } else if (step.do === "cut") {
          server.length = Math.max(0, server.length - step.lost); // a server restored from a copy
          outbox.resume(server.length);
        }
      }
      for (let round = 0; server.length < written && round < roundsMax; round++) {
        await outbox.pump(receive);
        outbox.acknowledge(server.length);
      }
      assert.equal(server.length, written);
    }),
    { numRuns: 60 },
  );
});

test("a server that lost what it had acknowledged is sent it again", async () => {
  const folder = await makeFolder();
  await writeFile(join(folder, "events.ndjson"), log(1) + log(2) + log(3));
  const outbox = createEventOutbox(folder);
  const sent: number[] = [];
  const send = (events: JobEvent[]) => sent.push(...events.map(({ seq }) => seq)) > 0;
  outbox.resume(0);
  await outbox.pump(send);
  outbox.acknowledge(3);

  outbox.resume(1);
  await outbox.pump(send);

  assert.deepEqual(sent, [1, 2, 3, 2, 3]);
});

test("no more than four batches are under way, and an acknowledgement reaches no further than what was sent", async () => {
  const folder = await makeFolder();
  await writeFile(
    join(folder, "events.ndjson"),
    Array.from({ length: 9000 }, (_, index) => log(index + 1)).join(""),
  );
  const outbox = createEventOutbox(folder);
  const sizes: number[] = [];
  outbox.resume(0);

  outbox.acknowledge(9000);
  await outbox.pump((events) => sizes.push(events.length) > 0);

  assert.equal(sizes.length, 4);
  assert(sizes.every((size) => size <= 1000));
});

test("a file with a hole, with something else in it, or that goes on after the outcome is corrupt there", async () => {
  const outcome = JSON.stringify({
    seq: 2,
    at: "x",
    type: "outcome",
    outcome: { status: "failed" },
  });
  for (const [text, good] of [
    [log(1) + log(3), 1],
    [`${log(1)}{}\n${log(2)}`, 1],
    [`${log(1)}${outcome}\n${log(3)}`, 2],
  ] as const) {
    const folder = await makeFolder();
    await writeFile(join(folder, "events.ndjson"), text);

    const read = await readEvents(folder, startMark);

    assert.equal(read.events.length, good);
    assert.notEqual(read.corrupt, null);
  }
});

test("an outcome written in the executor's place replaces its torn line, once", async () => {
  const folder = await makeFolder();
  const file = join(folder, "events.ndjson");
  await writeFile(file, `${log(1)}${log(2)}{"seq":3,"at`);

  await appendOutcome(folder, { status: "cancelled", code: "cancelled" }, new Date(0));
  await appendOutcome(folder, { status: "failed" }, new Date(0));

  const lines = (await readFile(file, "utf8")).trim().split("\n");
  assert.equal(lines.length, 3);
  assert.deepEqual(await readLastEvent(folder), {
    seq: 3,
    at: "1970-01-01T00:00:00.000Z",
    type: "outcome",
    outcome: { status: "cancelled", code: "cancelled" },
  });
});

test("an outcome is written even when the executor wrote nothing", async () => {
  const folder = await makeFolder();

  await appendOutcome(folder, { status: "failed", code: "timed_out" }, new Date(0));

  assert.equal((await readLastEvent(folder))?.seq, 1);
});

test("events are never read through a link that a job laid", async () => {
  const folder = await makeFolder();
  await writeFile(join(root, "secret"), log(1));
  await symlink(join(root, "secret"), join(folder, "events.ndjson"));

  await assert.rejects(readEvents(folder, startMark), { code: "ELOOP" });
});
