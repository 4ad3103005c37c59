/** Credits and turns of event frames, over random frames, acknowledgements and buffers. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { JobEvent } from "../protocol/events.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { createEventLane, type EventsFrame } from "./event-lane.ts";

const at = "2030-01-01T00:00:00Z";
const keyOf = (job: number): JobKey => ({
  jobId: `job_${String(job).padStart(24, "0")}` as JobKey["jobId"],
  epoch: { generation: 1, n: 1 },
});
const line = (seq: number, text: string): JobEvent => ({
  seq,
  at,
  type: "log",
  stream: "stdout",
  line: text,
});
const frameOf = (job: number, ...events: JobEvent[]): EventsFrame => ({
  type: "events",
  ...keyOf(job),
  events,
});

/** A socket that keeps what it was given until the test lets it out. */
function createSocket() {
  const written: string[] = [];
  let pending: { bytes: number; done: () => void }[] = [];
  return {
    written,
    write(text: string, done: () => void) {
      written.push(text);
      pending.push({ bytes: Buffer.byteLength(text), done });
    },
    bufferedBytes: () => pending.reduce((sum, { bytes }) => sum + bytes, 0),
    drain() {
      const drained = pending;
      pending = [];
      for (const { done } of drained) done();
    },
  };
}

test("frames without an acknowledgement never exceed the credit, and all arrive in each job's order", () => {
  const step = fc.oneof(
    fc.record({ put: fc.integer({ min: 0, max: 3 }), size: fc.integer({ min: 1, max: 400 }) }),
    fc.record({ ack: fc.integer({ min: 0, max: 50 }) }),
    fc.constant("drain" as const),
  );
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 2000 }),
      fc.array(step, { maxLength: 80 }),
      (credit, steps) => {
        const socket = createSocket();
        const lane = createEventLane(socket);
        lane.setCredit(credit);
        const seqs = [0, 0, 0, 0];
        const put: string[] = [];
        let unacknowledged: EventsFrame[] = [];
        let read = 0;
        const check = () => {
          for (; read < socket.written.length; read++) {
            unacknowledged.push(JSON.parse(socket.written[read] ?? ""));
          }
          const bytes = unacknowledged.map((frame) => Buffer.byteLength(JSON.stringify(frame)));
          const sum = bytes.reduce((a, b) => a + b, 0);
          assert(bytes.length <= 1 || sum <= credit, `${sum} of ${credit} bytes`);
        };
        const acknowledge = (frame: EventsFrame | undefined) => {
          if (!frame) return;
          unacknowledged = unacknowledged.filter((each) => each !== frame);
          lane.acknowledge(frame, frame.events.at(-1)?.seq ?? 0);
          check();
        };
        for (const each of steps) {
          if (each === "drain") socket.drain();
          else if ("ack" in each) acknowledge(unacknowledged[0]);
          else {
            const seq = (seqs[each.put] ?? 0) + 1;
            seqs[each.put] = seq;
            const frame = frameOf(each.put, line(seq, "x".repeat(each.size)));
            put.push(JSON.stringify(frame));
            lane.put(frame);
          }
          check();
        }
        for (let round = 0; round < 200 && socket.written.length < put.length; round++) {
          socket.drain();
          check();
          acknowledge(unacknowledged[0]);
        }
        assert.deepEqual(socket.written, put);
      },
    ),
  );
});

test("a job waits for its turn alone: its neighbours still have room for one frame each", () => {
  const socket = createSocket();
  const lane = createEventLane(socket);
  lane.setCredit(200);

  lane.put(frameOf(1, line(1, "x".repeat(300))));
  assert(lane.hasRoom(keyOf(1)), "the first goes out, however large");
  lane.put(frameOf(1, line(2, "y")));

  assert(!lane.hasRoom(keyOf(1)));
  assert(lane.hasRoom(keyOf(2)));
  assert(!lane.hasRoom());
  lane.put(frameOf(2, line(1, "z")));
  assert(!lane.hasRoom(keyOf(2)));
  assert.equal(socket.written.length, 1);
  lane.acknowledge(keyOf(1), 1);
  socket.drain();
  assert.equal(socket.written.length, 2, "the credit is full again");
  lane.acknowledge(keyOf(1), 2);
  assert.equal(socket.written.length, 3);
});

test("a gap's credit comes back with the last number that it stands for", () => {
  const socket = createSocket();
  const lane = createEventLane(socket);
  lane.setCredit(1);
  lane.put(frameOf(1, { seq: 1, at, type: "gap", last: 9, reason: "full" }));
  lane.put(frameOf(1, line(10, "x")));

  lane.acknowledge(keyOf(1), 8);
  assert.equal(socket.written.length, 1);
  lane.acknowledge({ ...keyOf(1), epoch: { generation: 1, n: 2 } }, 9);
  assert.equal(socket.written.length, 1, "another try's acknowledgement is not this one's");
  lane.acknowledge(keyOf(1), 9);
  assert.equal(socket.written.length, 2);
});

test("while the socket's buffer is full, events wait, so that control frames do not wait behind them", () => {
  const socket = createSocket();
  const lane = createEventLane(socket);
  for (let seq = 1; seq <= 10; seq++) lane.put(frameOf(seq, line(1, "x".repeat(20_000))));

  assert(socket.bufferedBytes() <= 64 * 1024 + 21_000, `${socket.bufferedBytes()} bytes ahead`);
  while (socket.written.length < 10) socket.drain();
});
