/** Lines of jobs in a real blob store and a real index, also when the same stretch comes twice or at once. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
  createActiveInstall,
  insertJob,
  type ListeningServer,
  releaseApp,
  startHttp,
  syncNoopApp,
} from "../../test/http-server.ts";
import type { JobId } from "../model/ids.ts";
import type { JobEvent } from "../protocol/events.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { appendEvents, lastStored, readEvents } from "./log-chunks.ts";

let server: ListeningServer;
let installId: string;
before(async () => {
  server = await startHttp();
  await syncNoopApp(server, "app", { a: [] });
  await releaseApp(server, "app");
  installId = await createActiveInstall(server, "app", "app", { capabilities: [], missing: {} });
});
after(() => server.close());

test("a stretch that comes again is stored once, and only its new part is added", async () => {
  const key = await newKey();

  assert.equal(await appendEvents(server.context, key, lines(1, 3)), 3);
  assert.equal(await appendEvents(server.context, key, lines(1, 3)), 3);
  assert.equal(await appendEvents(server.context, key, lines(2, 5)), 5);

  assert.equal(await lastStored(server.context, key), 5);
  assert.deepEqual(await numbersOf(key), [1, 2, 3, 4, 5]);
});

test("a hole is refused and nothing of it is stored", async () => {
  const key = await newKey();
  await appendEvents(server.context, key, lines(1, 2));

  await assert.rejects(appendEvents(server.context, key, lines(4, 5)), { code: "conflict" });

  assert.deepEqual(await numbersOf(key), [1, 2]);
});

test("writers that bring overlapping stretches at once lose nothing and repeat nothing", async () => {
  const key = await newKey();
  const ends = [40, 7, 23, 40, 12, 31, 3, 18];

  const results = await Promise.allSettled(
    ends.map((end) => appendEvents(server.context, key, lines(1, end))),
  );

  assert(results.some(({ status }) => status === "fulfilled"));
  await appendEvents(server.context, key, lines(1, 40));
  assert.deepEqual(
    await numbersOf(key),
    Array.from({ length: 40 }, (_, index) => index + 1),
  );
});

test("a late writer's shorter stretch never replaces the longer one that was stored meanwhile", async () => {
  const key = await newKey();
  const { promise: stored, resolve } = Promise.withResolvers<void>();
  const late = {
    ...server.context.blobs,
    async write(name: string, content: Uint8Array) {
      await stored;
      await server.context.blobs.write(name, content);
    },
  };
  const short = appendEvents({ ...server.context, blobs: late }, key, lines(1, 2));
  await appendEvents(server.context, key, lines(1, 5));

  resolve();

  assert.equal(await short, 5);
  assert.deepEqual(await numbersOf(key), [1, 2, 3, 4, 5]);
});

test("reading goes on after a number, in pages, and takes the newest try", async () => {
  const key = await newKey();
  await appendEvents(server.context, key, lines(1, 2));
  await appendEvents(server.context, key, lines(3, 4));
  const again = { ...key, epoch: { generation: 1, n: 2 } };

  const page = await readEvents(server.context, key.jobId, { after: 1, limit: 1 });
  await appendEvents(server.context, again, lines(1, 1));
  const newest = await readEvents(server.context, key.jobId, { after: 0, limit: 100 });
  const older = await readEvents(server.context, key.jobId, {
    epoch: key.epoch,
    after: 0,
    limit: 100,
  });

  assert.deepEqual([page.events.map(({ seq }) => seq), page.more], [[2], true]);
  assert.deepEqual([newest.epoch, newest.events.length, newest.more], [again.epoch, 1, false]);
  assert.equal(older.events.length, 4);
});

test("a gap stands for its numbers: what follows it goes on without a hole, and a page may end or begin in it", async () => {
  const key = await newKey();

  assert.equal(await appendEvents(server.context, key, [...lines(1, 2), gap(3, 1000)]), 1000);
  assert.equal(await appendEvents(server.context, key, lines(1001, 1002)), 1002);
  await assert.rejects(appendEvents(server.context, key, lines(1004, 1004)), { code: "conflict" });

  assert.equal(await lastStored(server.context, key), 1002);
  assert.deepEqual(await numbersOf(key), [1, 2, 3, 1001, 1002]);
  for (const [after, expected] of [
    [2, [3, 1001, 1002]],
    [500, [3, 1001, 1002]],
    [1000, [1001, 1002]],
  ] as const) {
    const page = await readEvents(server.context, key.jobId, { after, limit: 100 });
    assert.deepEqual(
      page.events.map(({ seq }) => seq),
      expected,
    );
  }
});

test("a gap that begins in what is stored already stands for the rest alone", async () => {
  const key = await newKey();
  await appendEvents(server.context, key, lines(1, 5));

  assert.equal(await appendEvents(server.context, key, [gap(3, 8), ...lines(9, 9)]), 9);
  assert.equal(await appendEvents(server.context, key, [gap(3, 8), ...lines(9, 10)]), 10);

  const { events } = await readEvents(server.context, key.jobId, { after: 0, limit: 100 });
  assert.deepEqual(events, [...lines(1, 5), gap(6, 8), ...lines(9, 10)]);
});

test("a gap that ends before it begins is refused", async () => {
  const key = await newKey();

  await assert.rejects(appendEvents(server.context, key, [...lines(1, 4), gap(5, 3)]), {
    code: "conflict",
  });
});

test("the blob is there before the row that points at it", async () => {
  const key = await newKey();
  const blobs = {
    ...server.context.blobs,
    write: () => Promise.reject(new Error("The disk is full.")),
  };

  await assert.rejects(
    appendEvents({ ...server.context, blobs }, key, lines(1, 1)),
    /disk is full/,
  );

  assert.equal(await lastStored(server.context, key), 0);
});

test("lines of a job that does not exist are refused", async () => {
  const key = { jobId: "job_000000000000000000000000" as JobId, epoch: { generation: 1, n: 1 } };

  await assert.rejects(appendEvents(server.context, key, lines(1, 1)), { code: "not_found" });
});

function lines(first: number, last: number): JobEvent[] {
  return Array.from({ length: last - first + 1 }, (_, index) => ({
    seq: first + index,
    at: "2030-01-01T00:00:00Z",
    type: "log",
    stream: "stdout",
    line: `line ${first + index}`,
  }));
}

function gap(seq: number, last: number): JobEvent {
  return { seq, last, at: "2030-01-01T00:00:00Z", type: "gap", reason: "The spool was full." };
}

async function newKey(): Promise<JobKey> {
  const job = { component: null, operation: "provision", state: "succeeded" };
  const jobId = (await insertJob(server, installId, job)) as JobId;
  return { jobId, epoch: { generation: 1, n: 1 } };
}

async function numbersOf(key: JobKey): Promise<number[]> {
  const { events } = await readEvents(server.context, key.jobId, { after: 0, limit: 1000 });
  return events.map(({ seq }) => seq);
}
