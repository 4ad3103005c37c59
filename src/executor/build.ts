/** build: from a component's source to an artifact in the vendor's registry, the same for the same input. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Outcome } from "../model/job.ts";
import { componentArtifactType, writeArtifact } from "../oci/artifact.ts";
import { createRegistryClient } from "../oci/registry-client.ts";
import { type ExecutorContext, requestFor, requirePart, requireSuccess } from "./context.ts";
import { fetchSource } from "./source.ts";

/** Builds, packs and pushes. Only a build job's token may push. */
export async function build(context: ExecutorContext): Promise<Outcome> {
  const { manifest, workDirectory } = context;
  const component = requirePart(manifest.component, "component");
  const { repository } = requirePart(manifest.artifact, "artifact");
  const sourceDirectory = await fetchSource(context);
  const outputDirectory = join(workDirectory, "output");
  await mkdir(outputDirectory, { recursive: true });
  const result = await context.runPlugin(
    requestFor(context, "build", component, {
      sourceDirectory,
      outputDirectory,
      artifactDigest: null,
    }),
  );
  requireSuccess(result);
  const { digest, sizeBytes } = await push(context, repository, outputDirectory, {
    "dev.landfall.component": component.name,
    "dev.landfall.component.type": component.type,
    ...(manifest.source ? { "dev.landfall.source.digest": manifest.source.digest } : {}),
    ...(manifest.fingerprint ? { "dev.landfall.inputs.digest": manifest.fingerprint } : {}),
  });
  context.log.log("system", `pushed ${repository}@${digest} (${sizeBytes} bytes)`);
  return { status: "succeeded", artifact: { repository, digest, sizeBytes } };
}

async function push(
  context: ExecutorContext,
  repository: string,
  directory: string,
  annotations: Record<string, string>,
) {
  const { vendorRegistry } = await context.readCredentials();
  const client = createRegistryClient({
    url: requirePart(vendorRegistry, "credentials.vendorRegistry").url,
    repository,
    credentials: {
      token: async () =>
        requirePart((await context.readCredentials()).vendorRegistry, "credentials.vendorRegistry")
          .token,
    },
    signal: context.signal,
  });
  try {
    return await writeArtifact(client, {
      artifactType: componentArtifactType,
      directory,
      annotations,
      workDirectory: context.workDirectory,
    });
  } finally {
    client.close();
  }
}
