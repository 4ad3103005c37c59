/** Offers: jobs are claimed in one statement, their secrets made in the same transaction, then sent. */
import type { AgentId } from "../../model/ids.ts";
import type { Manifest } from "../../protocol/documents.ts";
import type { JobCredentials } from "../../protocol/job-folder.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import { signDocument } from "../../protocol/signed-document.ts";
import type { ServerContext } from "../context.ts";
import { type Asker, leaseSeconds, type OfferedJob, offerJobs } from "../job-machine.ts";
import { readManifest } from "../manifest.ts";
import { createCredentials } from "./credentials.ts";

export interface ReadyOffer {
  readonly key: JobKey;
  readonly manifest: Manifest;
  readonly frame: {
    readonly type: "offer";
    readonly manifest: string;
    readonly grant: string;
    readonly credentials: JobCredentials;
  };
}

/** Claims up to `limit` jobs of a queue for an agent, and makes all that an offer needs. */
export async function claimOffers(
  context: ServerContext,
  asker: Asker,
  queue: string,
  { limit, serverNow }: { limit: number; serverNow: () => Date },
): Promise<ReadyOffer[]> {
  return context.database.transaction("server", async (sql) => {
    const offers: ReadyOffer[] = [];
    for (const job of await offerJobs(sql, asker, queue, limit)) {
      const manifest = readManifest(job.manifest);
      const key = { jobId: job.id, epoch: { generation: job.generation, n: job.n } };
      const credentials = await createCredentials(context, sql, manifest, key);
      const grant = await signGrant(context, asker.agentId, job, serverNow());
      offers.push({
        key,
        manifest,
        frame: { type: "offer", manifest: job.manifest, grant, credentials },
      });
    }
    return offers;
  });
}

function signGrant(
  context: ServerContext,
  agentId: AgentId,
  job: OfferedJob,
  serverTime: Date,
): Promise<string> {
  return signDocument(
    "landfall-grant",
    {
      version: 1,
      jobId: job.id,
      manifestDigest: job.manifest_digest,
      agentId,
      epoch: { generation: job.generation, n: job.n },
      serverTime: serverTime.toISOString(),
      leaseSeconds,
    },
    context.keys.signing,
  );
}
