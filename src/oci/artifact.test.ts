/** Artifacts keep their digest on every way, and damaged ones are not unpacked. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { appendFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { canonicalJson } from "../model/json.ts";
import {
  componentArtifactType,
  contentLayerType,
  readArtifact,
  writeArtifact,
} from "./artifact.ts";
import { blobOf, imageManifestOf } from "./content-conformance.ts";
import { isBadContent } from "./content-fault.ts";
import { contentOf, describeContent } from "./content-stream.ts";
import { copy } from "./copy.ts";
import { openLayout } from "./layout.ts";
import { withFolder, withRegistry } from "./registry.fixture.ts";
import { createRegistryClient } from "./registry-client.ts";

const artifactType = componentArtifactType;

test("a directory goes to a registry, on to another, and comes out the same", () =>
  withFolder((folder) =>
    withRegistry((vendor) =>
      withRegistry(async (install) => {
        const directory = await exampleIn(folder);
        const options = { repository: "guestbook/web", credentials: null };
        const source = createRegistryClient({ url: vendor.url, ...options });
        const target = createRegistryClient({ url: install.url, ...options });
        const annotations = { "dev.landfall.component": "web" };

        const { digest, sizeBytes } = await writeArtifact(source, {
          artifactType,
          directory,
          annotations,
        });
        const copied = await copy(source, target, digest);
        const read = await readArtifact(target, digest, join(folder, "out"));

        assert.equal(await readFile(join(folder, "out", "sub", "main.js"), "utf8"), "run()");
        assert.deepEqual(read, { digest, artifactType, annotations, sizeBytes });
        assert.equal(copied.bytesCopied, sizeBytes);
        assert.deepEqual((await readdir(folder)).sort(), ["example", "out"]);
        source.close();
        target.close();
      }),
    ),
  ));

test("the same directory has the same digest anywhere, and writing it again pushes nothing", () =>
  withFolder(async (folder) => {
    const directory = await exampleIn(folder);
    const first = await openLayout(join(folder, "first"), randomBytes);
    const second = await openLayout(join(folder, "second"), randomBytes);

    const one = await writeArtifact(first, { artifactType, directory });
    const two = await writeArtifact(second, { artifactType, directory });
    const again = await writeArtifact(
      { ...first, push: () => assert.fail("nothing is to be pushed") },
      { artifactType, directory },
    );

    assert.deepEqual(two, one);
    assert.deepEqual(again, one);
  }));

test("an artifact whose layer was changed is not unpacked", () =>
  withFolder(async (folder) => {
    const directory = await exampleIn(folder);
    const layout = await openLayout(join(folder, "layout"), randomBytes);
    const { digest } = await writeArtifact(layout, { artifactType, directory });
    const blobs = join(folder, "layout", "blobs", "sha256");
    for (const name of await readdir(blobs)) {
      const bytes = await readFile(join(blobs, name));
      // A gzip with something after its end still unpacks; only the digest tells.
      if (bytes[0] === 0x1f) await appendFile(join(blobs, name), "trailing");
    }

    const error = await failure(readArtifact(layout, digest, join(folder, "out")));

    assert.equal(isBadContent(error), true, String(error));
    assert.deepEqual((await readdir(folder)).sort(), ["example", "layout"]);
  }));

test("content of the promised size but other bytes is not unpacked, however well it unpacks", () =>
  withFolder(async (folder) => {
    const honest = gzipSync(Buffer.alloc(1024));
    const forged = Buffer.from(honest);
    forged[9] = (forged[9] ?? 0) ^ 1;
    const layer = describeContent(contentLayerType, honest);
    const config = blobOf("{}");
    const manifest = imageManifestOf(config.descriptor, [layer]);
    const layout = await openLayout(join(folder, "layout"), randomBytes);
    await layout.push(config.descriptor, contentOf(config.bytes));
    await layout.push(layer, contentOf(honest));
    await layout.push(manifest.descriptor, contentOf(manifest.bytes));
    await writeFile(join(folder, "layout", "blobs", "sha256", layer.digest.slice(7)), forged);

    const error = await failure(
      readArtifact(layout, manifest.descriptor.digest, join(folder, "out")),
    );

    assert.equal(isBadContent(error), true, String(error));
    assert.deepEqual(await readdir(folder), ["layout"]);
  }));

test("an image that is no artifact of ours is refused", () =>
  withFolder(async (folder) => {
    const layout = await openLayout(join(folder, "layout"), randomBytes);
    const config = blobOf("{}");
    const manifest = imageManifestOf(config.descriptor, []);
    await layout.push(config.descriptor, contentOf(config.bytes));
    await layout.push(manifest.descriptor, contentOf(manifest.bytes));

    const error = await failure(
      readArtifact(layout, manifest.descriptor.digest, join(folder, "out")),
    );

    assert.equal(isBadContent(error), true);
    assert.match(String(error), /one layer of type/);
    assert.equal(canonicalJson(await readdir(folder)), '["layout"]');
  }));

async function exampleIn(folder: string): Promise<string> {
  const directory = join(folder, "example");
  await mkdir(join(directory, "sub"), { recursive: true });
  await writeFile(join(directory, "sub", "main.js"), "run()");
  await writeFile(join(directory, "readme"), "hello");
  return directory;
}

async function failure(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => assert.fail("it did not fail"),
    (error: unknown) => error,
  );
}
