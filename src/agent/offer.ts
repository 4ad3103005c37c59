/**
 * What to do with an offer: launch it, answer for one that is running already, or refuse it.
 *
 * Invariant: an executor starts only for a manifest and a grant that the server signed, that belong
 * together and to this agent, under an epoch never seen before, while no executor of an older epoch
 * of that job or component can still act.
 */
import { compareEpochs, type Epoch, formatEpoch } from "../model/job.ts";
import type { Digest } from "../model/json.ts";
import { LeaseGrant, Manifest } from "../protocol/documents.ts";
import type { JobKey } from "../protocol/job-key.ts";
import { type FindKey, verifyDocument } from "../protocol/signed-document.ts";
import type { RefusalCode } from "./session.ts";

/** How much older than its lease a grant may be; more means that somebody kept it. */
const grantSlackMs = 60_000;

/** Both documents of an offer, verified and taken together. */
export interface VerifiedOffer {
  readonly key: JobKey;
  readonly manifest: Manifest;
  readonly manifestDigest: Digest;
  readonly grant: LeaseGrant;
  readonly component: string | null;
}

/** A job that the agent knows of, as far as the decision needs it. */
export interface KnownJob {
  readonly key: JobKey;
  readonly component: string | null;
  readonly manifestDigest: Digest;
  /** Its outcome is written, or it died: whatever is left of it may be ended. */
  readonly over: boolean;
}

export interface OfferView {
  readonly agentId: string;
  readonly serverNowMs: number;
  readonly newestEpoch: Epoch | null;
  readonly jobs: readonly KnownJob[];
  readonly freeSlots: number;
}

export type OfferDecision =
  /** `clear`: what must be proved gone first. */
  | { readonly kind: "launch"; readonly clear: readonly JobKey[] }
  | { readonly kind: "again" }
  | { readonly kind: "refuse"; readonly code: RefusalCode; readonly reason: string };

/** Verifies both signatures and shapes; throws a `Fault` otherwise. */
export async function verifyOffer(
  offer: { readonly manifest: string; readonly grant: string },
  findKey: FindKey,
): Promise<VerifiedOffer> {
  const manifest = await verifyDocument("landfall-manifest", Manifest, offer.manifest, findKey);
  const grant = await verifyDocument("landfall-grant", LeaseGrant, offer.grant, findKey);
  return {
    key: { jobId: grant.payload.jobId, epoch: grant.payload.epoch },
    manifest: manifest.payload,
    manifestDigest: manifest.digest,
    grant: grant.payload,
    component: componentOf(manifest.payload),
  };
}

/** Decides over a verified offer; pure. */
export function decideOffer(offer: VerifiedOffer, view: OfferView): OfferDecision {
  const { key, grant, manifestDigest } = offer;
  const mismatch = findMismatch(offer, view);
  if (mismatch) return mismatch;

  const same = view.jobs.find((job) => sameTry(job.key, key));
  if (same && same.manifestDigest === manifestDigest) return { kind: "again" };
  const ageMs = view.serverNowMs - Date.parse(grant.serverTime);
  if (!(ageMs <= grant.leaseSeconds * 1000 + grantSlackMs)) {
    return refuse("replayed", `Expected a grant of now, got one of ${grant.serverTime}.`);
  }
  if (view.newestEpoch && compareEpochs(key.epoch, view.newestEpoch) <= 0) {
    const [got, seen] = [formatEpoch(key.epoch), formatEpoch(view.newestEpoch)];
    return refuse("replayed", `Expected an epoch newer than ${seen} of this job, got ${got}.`);
  }
  const rivals = view.jobs.filter(
    (job) =>
      job.key.jobId === key.jobId || (job.component !== null && job.component === offer.component),
  );
  const alive = rivals.find((job) => !job.over);
  if (alive) {
    const rival = `${alive.key.jobId} (epoch ${formatEpoch(alive.key.epoch)})`;
    return refuse("older_epoch_alive", `Expected nothing else on this component, got ${rival}.`);
  }
  if (view.freeSlots < 1) return refuse("no_slot", "Expected a free slot, got none.");
  return { kind: "launch", clear: rivals.map((job) => job.key) };
}

function findMismatch({ manifest, manifestDigest, grant }: VerifiedOffer, view: OfferView) {
  if (grant.agentId !== view.agentId) {
    return refuse(
      "not_mine",
      `Expected a grant for ${view.agentId}, got one for ${grant.agentId}.`,
    );
  }
  if (grant.manifestDigest !== manifestDigest) {
    return refuse("invalid", "Expected a grant for this manifest, got one for another.");
  }
  if (grant.jobId !== manifest.jobId) {
    return refuse("invalid", `Expected a grant for ${manifest.jobId}, got one for ${grant.jobId}.`);
  }
  return null;
}

/** Builds change nothing in an install, so two of one component may run side by side. */
function componentOf(manifest: Manifest): string | null {
  return manifest.install && `${manifest.install.id}/${manifest.component?.name ?? ""}`;
}

/** True for the same try of the same job. */
export function sameTry(a: JobKey, b: JobKey): boolean {
  return a.jobId === b.jobId && compareEpochs(a.epoch, b.epoch) === 0;
}

function refuse(code: RefusalCode, reason: string): OfferDecision {
  return { kind: "refuse", code, reason };
}
