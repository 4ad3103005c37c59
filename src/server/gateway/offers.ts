/** Offers: jobs are claimed in one statement, their secrets made in the same transaction, then sent. */
import type { AgentId } from "../../model/ids.ts";
import type { Manifest } from "../../protocol/documents.ts";
import type { JobCredentials } from "../../protocol/job-folder.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import { signDocument } from "../../protocol/signed-document.ts";
import type { ServerContext } from "../context.ts";
import { type Ask, leaseSeconds, type OfferedJob, offerJobsToAll } from "../job-machine.ts";
import { readManifest } from "../manifest.ts";
import { createCredentials } from "./credentials.ts";
import { createGathering, type Gathering } from "./gathering.ts";

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

/** An ask for jobs, with the clock of the connection that asks. */
export interface OfferAsk extends Ask {
  readonly serverNow: () => Date;
}

/** Askers whose offers are claimed in one transaction: grants are signed in it, so not too many. */
const asksMax = 64;

/** Claims for all connections of a gateway together. */
export function createOfferDesk(context: ServerContext): Gathering<OfferAsk, ReadyOffer[]> {
  return createGathering<OfferAsk, ReadyOffer[]>({
    log: context.log,
    batchMax: asksMax,
    // Two that ask for the same queue would be given the same job.
    keyOf: (ask) => ask.queue,
    handle: (asks) => claimAll(context, asks),
    handleAlone: async (ask) => (await claimAll(context, [ask]))[0] ?? [],
  });
}

/** Claims jobs for askers of different queues, and makes all that an offer needs. */
export async function claimAll(
  context: ServerContext,
  asks: readonly OfferAsk[],
): Promise<ReadyOffer[][]> {
  return context.database.transaction("server", async (sql) => {
    const offers = new Map<AgentId, ReadyOffer[]>(asks.map((ask) => [ask.agentId, []]));
    const clocks = new Map(asks.map((ask) => [ask.agentId, ask.serverNow]));
    for (const job of await offerJobsToAll(sql, asks)) {
      const manifest = readManifest(job.manifest);
      const key = { jobId: job.id, epoch: { generation: job.generation, n: job.n } };
      const credentials = await createCredentials(context, sql, manifest, key);
      const serverTime = (clocks.get(job.agent_id) ?? context.now)();
      const grant = await signGrant(context, job.agent_id, job, serverTime);
      offers.get(job.agent_id)?.push({
        key,
        manifest,
        frame: { type: "offer", manifest: job.manifest, grant, credentials },
      });
    }
    return asks.map((ask) => offers.get(ask.agentId) ?? []);
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
