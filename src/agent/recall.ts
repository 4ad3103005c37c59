/**
 * The answer to `recall`: a server whose memory went back in time is told all that ended here, in pages,
 * as fast as the connection takes them.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Journal } from "./journal.ts";
import type { Link } from "./running-job.ts";

const pauseMs = 20;

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
