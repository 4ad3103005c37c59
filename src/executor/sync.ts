/** sync: the same digests from the vendor's registry in the install's own. Nothing is unpacked or run. */
import type { Outcome } from "../model/job.ts";
import { copy } from "../oci/copy.ts";
import { createRegistryClient } from "../oci/registry-client.ts";
import { type ExecutorContext, requirePart } from "./context.ts";

/** Copies the artifact with all that it names; what is there already is not copied again. */
export async function sync(context: ExecutorContext): Promise<Outcome> {
  const { repository, digest: named } = requirePart(context.manifest.artifact, "artifact");
  const digest = requirePart(named, "artifact.digest");
  const { signal } = context;
  const { vendorRegistry } = await context.readCredentials();
  const source = createRegistryClient({
    url: requirePart(vendorRegistry, "credentials.vendorRegistry").url,
    repository,
    // Asked for at each request: the agent renews the token while a long copy runs.
    credentials: { token: async () => tokenOf(context) },
    signal,
  });
  const { url, username, password } = requirePart(context.place.registry, "place.registry");
  const target = createRegistryClient({
    url,
    repository,
    credentials: { username, password },
    signal,
  });
  try {
    const result = await copy(source, target, digest, {
      signal,
      onProgress: ({ bytesCopied, bytesTotal }) =>
        context.log.reportProgress({
          label: repository,
          done: bytesCopied,
          total: bytesTotal,
          unit: "bytes",
        }),
    });
    context.log.log(
      "system",
      `copied ${result.bytesCopied} bytes, ${result.skipped} contents were there`,
    );
    const copied = result.copied.map(({ digest: each, bytes }) => ({
      repository,
      digest: each,
      bytes,
    }));
    return { status: "succeeded", copied, bytesCopied: result.bytesCopied };
  } finally {
    source.close();
    target.close();
  }
}

async function tokenOf(context: ExecutorContext): Promise<string> {
  const { vendorRegistry } = await context.readCredentials();
  return requirePart(vendorRegistry, "credentials.vendorRegistry").token;
}
