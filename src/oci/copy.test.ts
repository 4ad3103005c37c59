/** Whole graphs move between layout, folder and registry, whatever breaks on the way. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { canonicalJson } from "../model/json.ts";
import type { ContentTarget, Descriptor } from "./content.ts";
import { blobOf, imageManifestOf, pushImage } from "./content-conformance.ts";
import { isBadContent } from "./content-fault.ts";
import { collect, contentOf, describeContent } from "./content-stream.ts";
import { copy } from "./copy.ts";
import { mediaTypes } from "./image-manifest.ts";
import { openLayout } from "./layout.ts";
import { withFolder, withRegistry } from "./registry.fixture.ts";
import { createRegistryClient } from "./registry-client.ts";

test("an index with its images, blobs and referrers arrives whole, children before parents", () =>
  withBoth(async (source, target) => {
    const { index, all } = await pushGraph(source);
    const pushed: string[] = [];
    const watched = watch(target, (content) => pushed.push(content.digest));
    const seen: number[] = [];

    const result = await copy(source, watched, index.digest, {
      onProgress: ({ bytesCopied }) => seen.push(bytesCopied),
    });

    for (const content of all) {
      assert.equal(await target.has(content), true);
      await collect(await target.open(content), 1_000_000);
    }
    assert.deepEqual(
      result.copied.map((entry) => entry.digest).sort(),
      all.map((c) => c.digest).sort(),
    );
    assert.equal(
      result.bytesCopied,
      all.reduce((sum, content) => sum + content.size, 0),
    );
    assert.equal(result.skipped, 0);
    assert.equal(seen.at(-1), result.bytesCopied);
    assert.equal(pushed.indexOf(index.digest) > pushed.indexOf(all[0]?.digest ?? ""), true);
  }));

test("a second copy moves nothing", () =>
  withBoth(async (source, target) => {
    const { index } = await pushGraph(source);
    await copy(source, target, index.digest);

    const again = await copy(source, target, index.digest);

    assert.deepEqual(again.copied, []);
    assert.equal(again.bytesCopied, 0);
    assert.ok(again.skipped > 0);
  }));

test("a referrer that came later is copied though its subject is there", () =>
  withBoth(async (source, target) => {
    const { root } = await pushImage(source, "subject");
    await copy(source, target, root.digest);
    const late = await pushImage(source, "late", { subject: root, artifactType: "a/signature" });

    const result = await copy(source, target, root.digest);

    assert.equal(await target.has(late.root), true);
    assert.equal(result.copied.length, 3);
    assert.equal(result.skipped, 1);
  }));

test("a root that is not there is the source's failure", () =>
  withBoth(async (source, target) => {
    const absent = blobOf("absent").descriptor;

    await assert.rejects(copy(source, target, absent.digest), {
      code: "not_found",
      message: new RegExp(`${absent.digest} failed at the source \\(.*\\)`),
    });
  }));

test("a blob missing at the source fails there, and the imageManifest does not arrive", () =>
  withFolder((folder) =>
    withBoth(async (_source, target) => {
      const source = await openLayout(folder, randomBytes);
      const { root, layer } = await pushImage(source, "hello");
      await rm(join(folder, "blobs", "sha256", layer.digest.slice(7)));

      const error = await copy(source, target, root.digest).then(
        () => null,
        (reason: Error) => reason,
      );

      assert.match(String(error?.message), /failed at the source/);
      assert.equal(isBadContent(error), true);
      assert.equal(await target.has(root), false);
    }),
  ));

test("a target that refuses is named with what it answered", () =>
  withBoth(async (source) => {
    const { root } = await pushImage(source, "hello");
    await withRegistry(
      async ({ url }) => {
        const target = createRegistryClient({ url, repository: "a/b", credentials: null });
        await assert.rejects(copy(source, target, root.digest), {
          code: "forbidden",
          message: /failed at the target \(the registry .*a\/b\).*403 DENIED: not you/,
        });
        target.close();
      },
      {
        authorize: async ({ action }) =>
          action === "push" ? { status: 403, message: "not you." } : null,
      },
    );
  }));

test("the first of several failing blobs stops the others", () =>
  withBoth(async (source, target) => {
    const config = blobOf("{}");
    const layers = Array.from({ length: 20 }, (_, index) => blobOf(`layer ${index}`));
    for (const { bytes, descriptor } of [config, ...layers]) {
      await source.push(descriptor, contentOf(bytes));
    }
    const manifest = imageManifestOf(
      config.descriptor,
      layers.map((layer) => layer.descriptor),
    );
    await source.push(manifest.descriptor, contentOf(manifest.bytes));
    let pushes = 0;
    const failing = watch(target, (content) => {
      pushes++;
      if (content.digest === layers[1]?.descriptor.digest) throw new Error("the disk is full");
    });

    await assert.rejects(copy(source, failing, manifest.descriptor.digest, { blobsAtOnce: 2 }), {
      message: /failed at the target .*the disk is full/,
    });

    assert.ok(pushes < 10, `${pushes} pushes`);
  }));

test("a copy that is told to stop ends with that reason", () =>
  withBoth(async (source, target) => {
    const { root } = await pushImage(source, "hello");
    const stop = AbortSignal.abort(new Error("cancelled by a person"));

    await assert.rejects(copy(source, target, root.digest, { signal: stop }), {
      message: "cancelled by a person",
    });
  }));

/** Two registries over HTTP. */
function withBoth(use: (source: ContentTarget, target: ContentTarget) => Promise<void>) {
  return withRegistry((first) =>
    withRegistry(async (second) => {
      const source = createRegistryClient({ url: first.url, repository: "a/b", credentials: null });
      const target = createRegistryClient({
        url: second.url,
        repository: "a/b",
        credentials: null,
      });
      try {
        await use(source, target);
      } finally {
        source.close();
        target.close();
      }
    }),
  );
}

async function pushGraph(target: ContentTarget): Promise<{ index: Descriptor; all: Descriptor[] }> {
  const first = await pushImage(target, "amd64");
  const second = await pushImage(target, "arm64");
  const mediaType = mediaTypes.imageIndex;
  const manifests = [first.root, second.root];
  const bytes = Buffer.from(canonicalJson({ schemaVersion: 2, mediaType, manifests }));
  const index = describeContent(mediaType, bytes);
  await target.push(index, contentOf(bytes));
  const signature = await pushImage(target, "signature", { subject: first.root });
  const bill = await pushImage(target, "bill", { subject: index });
  const images = [first, second, signature, bill];
  const all = images.flatMap(({ root, config, layer }) => [root, config, layer]);
  return { index, all: [...all, index] };
}

function watch(target: ContentTarget, onPush: (content: Descriptor) => void): ContentTarget {
  return {
    ...target,
    async push(content, open) {
      onPush(content);
      await target.push(content, open);
    },
  };
}
