import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { requireFreePort } from "./free-port.ts";

test("a port in use is refused by name, with what to do", async () => {
  const other = createServer().listen(0, "127.0.0.1");
  await once(other, "listening");
  const address = other.address();
  assert(address && typeof address === "object");
  const { port } = address;

  await assert.rejects(requireFreePort(port), (error: Error) => {
    assert.match(error.message, new RegExp(`port ${port}`));
    assert.match(error.message, /--port N/);
    return true;
  });

  other.close();
  await once(other, "close");
  assert.equal(await requireFreePort(port), port);
});

test("0 picks a free port", async () => {
  assert((await requireFreePort(0)) > 1023);
});
