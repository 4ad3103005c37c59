/**
 * The answer to `recall`: a server whose memory went back in time is told all that ended here, in pages,
 * as fast as the connection takes them.
 */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { jobFolderName } from "../protocol/job-folder.ts";
import { readManifest } from "./job-files.ts";
import type { Journal } from "./journal.ts";
import type { Link } from "./running-job.ts";

const pauseMs = 20;

/** Jobs that an older agent launched are in the journal without their manifest: it lies in their folders. */
export async function completeManifests(journal: Journal, jobsDirectory: string): Promise<void> {
  for (const { key, manifest } of journal.jobs()) {
    if (manifest !== null) continue;
    const document = await readManifest(join(jobsDirectory, jobFolderName(key.jobId, key.epoch)));
    if (document !== null) await journal.setManifest(key, document);
  }
}

/** Sends every page on the connection that is there now, and stops with it; gives how many jobs were told. */
export async function tellEnded(journal: Journal, currentLink: () => Link | null): Promise<number> {
  const link = currentLink();
  if (!link) return 0;
  let told = 0;
  for (const page of journal.recallPages()) {
    while (currentLink() === link && !link.hasRoom()) await sleep(pauseMs);
    if (currentLink() !== link) return told;
    link.send({ type: "recalled", ...page });
    told += page.jobs.length;
  }
  return told;
}
