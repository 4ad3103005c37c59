/**
 * The artifact that a component is made from: read from the install's own registry and from nowhere
 * else, verified by digest, unpacked where it stays for the install's life.
 */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { Digest } from "../model/json.ts";
import { readArtifact } from "../oci/artifact.ts";
import { createRegistryClient } from "../oci/registry-client.ts";
import { supervisorFolders } from "../protocol/supervisor-folder.ts";
import { type ExecutorContext, requirePart } from "./context.ts";

/** The folder of the unpacked artifact; fetched unless it is there already, whole. */
export async function fetchArtifact(
  context: ExecutorContext,
): Promise<{ directory: string; digest: Digest }> {
  const { repository, digest: named } = requirePart(context.manifest.artifact, "artifact");
  const digest = requirePart(named, "artifact.digest");
  const directory = folderFor(context, digest);
  if (await isThere(directory)) return { directory, digest };
  const registry = requirePart(context.place.registry, "place.registry");
  const { url, username, password } = registry;
  const client = createRegistryClient({
    url,
    repository,
    credentials: { username, password },
    signal: context.signal,
  });
  try {
    await readArtifact(client, digest, directory);
  } catch (error) {
    // Another job of the same digest was faster: what it unpacked is the same.
    if (!(await isThere(directory))) throw error;
  } finally {
    client.close();
  }
  return { directory, digest };
}

function folderFor({ place, workDirectory }: ExecutorContext, digest: Digest): string {
  const name = digest.slice("sha256:".length);
  return place.supervisorDirectory === null
    ? join(workDirectory, "artifact")
    : join(place.supervisorDirectory, supervisorFolders.programs, name);
}

/** Unpacking ends with a rename, so a folder that is there is whole. */
function isThere(directory: string): Promise<boolean> {
  return readdir(directory).then(
    () => true,
    () => false,
  );
}
