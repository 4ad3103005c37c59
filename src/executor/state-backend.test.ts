/** The backend speaks Terraform's protocol, to one job only, over the fenced store. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import type { JobId } from "../model/ids.ts";
import { createMemoryStore } from "../store/memory-store.ts";
import type { Store } from "../store/store.ts";
import { startStateBackend } from "./state-backend.ts";

const fence = {
  component: "tf",
  jobId: `job_${"0".repeat(24)}` as JobId,
  epoch: { generation: 1, n: 1 },
};

test("state is written and read, and nobody without the password sees it", () =>
  withBackend({}, async ({ send, address }) => {
    assert.equal((await send("GET")).status, 404);
    assert.equal((await send("POST", "one")).status, 200);
    assert.equal((await send("POST", "two")).status, 200);

    assert.equal(await (await send("GET")).text(), "two");
    assert.equal((await fetch(address)).status, 401);
    assert.equal((await fetch(`${address}x`)).status, 401);
  }));

test("a held lock keeps others out until it is given back", () =>
  withBackend({}, async ({ send }) => {
    assert.equal((await send("LOCK", '{"ID":"a"}')).status, 200);

    const second = await send("LOCK", '{"ID":"b"}');
    assert.equal(second.status, 423);
    assert.equal(await second.text(), '{"ID":"a"}');
    assert.equal((await send("POST", "x", "?ID=b")).status, 423);
    assert.equal((await send("POST", "x", "?ID=a")).status, 200);
    assert.equal((await send("UNLOCK", '{"ID":"b"}')).status, 423);
    assert.equal((await send("UNLOCK", '{"ID":"a"}')).status, 200);
    assert.equal((await send("LOCK", '{"ID":"b"}')).status, 200);
  }));

test("a plan may only read", () =>
  withBackend({ isReadOnly: true }, async ({ send }) => {
    assert.equal((await send("POST", "x")).status, 403);
    assert.equal((await send("GET")).status, 404);
  }));

test("the state of an older try is refused and kept aside", () =>
  withBackend({}, async ({ send, store }) => {
    await store.openFence({ ...fence, epoch: { generation: 1, n: 2 } });

    assert.equal((await send("POST", "late")).status, 409);
    assert.equal(await store.read("backend-state/tf"), null);
    assert.equal((await store.list("conflicts/backend-state/tf/")).length, 1);
  }));

async function withBackend(
  given: { isReadOnly?: boolean },
  use: (tools: {
    send: (method: string, body?: string, query?: string) => Promise<Response>;
    address: string;
    store: Store;
  }) => Promise<void>,
): Promise<void> {
  const store = createMemoryStore();
  await store.openFence(fence);
  const isReadOnly = given.isReadOnly ?? false;
  const backend = await startStateBackend({ store, fence, isReadOnly, random: randomBytes });
  const { address, username, password } = backend;
  const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
  try {
    await use({
      address,
      store,
      send: (method, body, query = "") =>
        fetch(address + query, {
          method,
          headers: { authorization },
          ...(body === undefined ? {} : { body }),
        }),
    });
  } finally {
    await backend.close();
  }
}
