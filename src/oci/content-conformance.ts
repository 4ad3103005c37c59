/** The suite that every content target passes, and small artifacts to try it with. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { canonicalJson } from "../model/json.ts";
import type { ContentTarget, Descriptor } from "./content.ts";
import { collect, contentOf, describeContent } from "./content-stream.ts";
import { mediaTypes } from "./image-manifest.ts";

const layerType = "application/vnd.oci.image.layer.v1.tar";

/** A blob with these bytes. */
export function blobOf(text: string): { bytes: Buffer; descriptor: Descriptor } {
  const bytes = Buffer.from(text);
  return { bytes, descriptor: describeContent(layerType, bytes) };
}

/** An imageManifest over one config and these layers. */
export function imageManifestOf(
  config: Descriptor,
  layers: readonly Descriptor[],
  extra: { subject?: Descriptor; artifactType?: string } = {},
): { bytes: Buffer; descriptor: Descriptor } {
  const mediaType = mediaTypes.imageManifest;
  const bytes = Buffer.from(
    canonicalJson({ schemaVersion: 2, mediaType, config, layers, ...extra }),
  );
  return { bytes, descriptor: describeContent(mediaType, bytes) };
}

/** Pushes a config, a layer and their imageManifest; gives all three. */
export async function pushImage(
  target: ContentTarget,
  text: string,
  extra: { subject?: Descriptor; artifactType?: string } = {},
): Promise<{ root: Descriptor; config: Descriptor; layer: Descriptor }> {
  const config = blobOf(`{"config":"${text}"}`);
  const layer = blobOf(text);
  const manifest = imageManifestOf(config.descriptor, [layer.descriptor], extra);
  for (const { bytes, descriptor } of [config, layer, manifest]) {
    await target.push(descriptor, contentOf(bytes));
  }
  return { root: manifest.descriptor, config: config.descriptor, layer: layer.descriptor };
}

/** Registers the suite for one implementation; each test gets an empty target. */
export function testContentTarget(
  name: string,
  withTarget: (use: (target: ContentTarget) => Promise<void>) => Promise<void>,
): void {
  const check = (sentence: string, use: (target: ContentTarget) => Promise<void>) =>
    test(`${name}: ${sentence}`, () => withTarget(use));

  check("what is pushed is there and is read byte for byte", async (target) => {
    const { root, layer } = await pushImage(target, "hello");

    const read = await collect(await target.open(layer), 100);

    assert.equal(read.toString(), "hello");
    assert.equal(await target.has(layer), true);
    assert.equal(await target.has(root), true);
    const found = await target.stat(root.digest);
    assert.deepEqual(
      [found?.mediaType, found?.digest, found?.size],
      [root.mediaType, root.digest, root.size],
    );
  });

  check("what was never pushed is absent, and reading it fails as missing", async (target) => {
    const { descriptor } = blobOf("never pushed");

    assert.equal(await target.has(descriptor), false);
    assert.equal(await target.stat(descriptor.digest), null);
    await assert.rejects(async () => collect(await target.open(descriptor), 100), {
      code: "not_found",
      reason: "missing",
    });
  });

  check("a blob of no bytes can be kept", async (target) => {
    const { bytes, descriptor } = blobOf("");

    await target.push(descriptor, contentOf(bytes));

    assert.equal(await target.has(descriptor), true);
    assert.equal((await collect(await target.open(descriptor), 1)).length, 0);
  });

  check("bytes that do not match their digest are refused and not kept", async (target) => {
    const { descriptor } = blobOf("what was promised");
    const others = [Buffer.from("what was delivers"), Buffer.from("short"), Buffer.alloc(100_000)];

    for (const other of others) {
      await assert.rejects(target.push(descriptor, contentOf(other)), { reason: "mismatch" });
    }

    assert.equal(await target.has(descriptor), false);
  });

  check("an imageManifest is refused while something it names is missing", async (target) => {
    const config = blobOf("{}");
    const layer = blobOf("not pushed yet");
    const manifest = imageManifestOf(config.descriptor, [layer.descriptor]);
    await target.push(config.descriptor, contentOf(config.bytes));

    await assert.rejects(target.push(manifest.descriptor, contentOf(manifest.bytes)), {
      code: "not_found",
      reason: "missing",
    });
    assert.equal(await target.has(manifest.descriptor), false);

    await target.push(layer.descriptor, contentOf(layer.bytes));
    await target.push(manifest.descriptor, contentOf(manifest.bytes));
    assert.equal(await target.has(manifest.descriptor), true);
  });

  check("a push whose source breaks keeps nothing and gives the source's error", async (target) => {
    const { bytes, descriptor } = blobOf("a".repeat(1000));
    const broken = async () => breaking(bytes.subarray(0, 500));

    await assert.rejects(target.push(descriptor, broken), { message: "the source broke" });

    assert.equal(await target.has(descriptor), false);
  });

  check("what is pushed again, or by many at once, is the same", async (target) => {
    const { bytes, descriptor } = blobOf("again");

    await Promise.all(Array.from({ length: 8 }, () => target.push(descriptor, contentOf(bytes))));

    assert.equal((await collect(await target.open(descriptor), 100)).toString(), "again");
  });

  check("what refers to an imageManifest is listed with its type", async (target) => {
    const { root } = await pushImage(target, "subject");
    const artifactType = "application/vnd.example.signature";
    const signature = await pushImage(target, "signature", { subject: root, artifactType });

    const referrers = await target.referrers(root.digest);

    assert.deepEqual(
      referrers.map((entry) => [entry.digest, entry.artifactType]),
      [[signature.root.digest, artifactType]],
    );
    assert.deepEqual(await target.referrers(signature.root.digest), []);
  });
}

async function* breaking(first: Uint8Array): AsyncGenerator<Uint8Array> {
  yield first;
  throw new Error("the source broke");
}
