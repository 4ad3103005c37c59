/**
 * A job sees of its place only what its operation has business with: a build no install, a sync no
 * store, nothing but the sandbox's own operations the folder of installs.
 */
import type { Operation } from "../model/job.ts";
import type { Place } from "../protocol/job-folder.ts";

/** What of the place is this job's. */
export function narrowPlace(
  place: Place,
  manifest: { readonly operation: Operation; readonly component: object | null },
): Place {
  const isSandboxJob = manifest.component === null;
  const isDeploy = !isSandboxJob && ["plan", "apply", "destroy"].includes(manifest.operation);
  const isSync = manifest.operation === "sync";
  return {
    storeDirectory: isDeploy ? place.storeDirectory : null,
    registry: isDeploy || isSync ? place.registry : null,
    supervisorDirectory: isDeploy ? place.supervisorDirectory : null,
    installsDirectory: isSandboxJob ? place.installsDirectory : null,
    programs: isSandboxJob ? place.programs : null,
  };
}

/** The folders that a job with this place may write to, besides its own. */
export function writableFolders(place: Place): string[] {
  const folders = [place.storeDirectory, place.supervisorDirectory, place.installsDirectory];
  return folders.filter((folder) => folder !== null);
}
