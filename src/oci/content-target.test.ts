/** Folder store, layout folder and registry over HTTP keep the same promises. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { pushImage, testContentTarget } from "./content-conformance.ts";
import { collect } from "./content-stream.ts";
import { folderContent } from "./folder-content.ts";
import { openFolderStore } from "./folder-store.ts";
import { openLayout } from "./layout.ts";
import { withFolder, withRegistry } from "./registry.fixture.ts";
import { createRegistryClient } from "./registry-client.ts";

testContentTarget("a folder store", (use) =>
  withFolder(async (folder) => {
    const store = await openFolderStore(folder, { now: new Date(), random: randomBytes });
    await use(folderContent(store, "guestbook/web"));
  }),
);

testContentTarget("a layout", (use) =>
  withFolder(async (folder) => use(await openLayout(folder, randomBytes))),
);

testContentTarget("a registry over HTTP", (use) =>
  withRegistry(async ({ url }) => {
    const client = createRegistryClient({ url, repository: "guestbook/web", credentials: null });
    try {
      await use(client);
    } finally {
      client.close();
    }
  }),
);

test("a repository does not show what only another one of the same store has", () =>
  withFolder(async (folder) => {
    const store = await openFolderStore(folder, { now: new Date(), random: randomBytes });
    const { root, layer } = await pushImage(folderContent(store, "guestbook/web"), "hello");
    const other = folderContent(store, "guestbook/db");

    assert.equal(await other.stat(root.digest), null);
    assert.equal(await other.has(layer), false);
    for (const content of [root, layer]) {
      await assert.rejects(async () => collect(await other.open(content), 1000), {
        reason: "missing",
      });
    }
  }));
