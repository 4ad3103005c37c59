/**
 * Plans in the install's store, and the digests by which they are approved.
 *
 * A plan may hold secrets, and its digest leaves the install. So what is digested also holds a keyed
 * hash of the plan: who does not have the store's key cannot try values against the digest.
 */
import { z } from "zod";
import { canonicalJson, type Digest, digestOf, digestOfJson, type Json } from "../model/json.ts";
import { OperationFailure } from "../plugin/plugin.ts";
import { DigestText, JsonValue } from "../protocol/json-schema.ts";
import { storeKeys } from "../store/store.ts";
import { decode, encode, type OpenComponent } from "./component.ts";

const PlanRecord = z.object({ seal: z.string(), plan: JsonValue, diff: z.string() });

export interface PlanDigests {
  readonly planDigest: Digest;
  readonly diffDigest: Digest;
  readonly baseDigest: Digest;
  readonly approvalDigest: Digest;
}

/** Stores a plan in place of the component's last one, and gives what an approval names. */
export async function storePlan(
  { store, fence, name }: OpenComponent,
  plan: Json,
  diff: string,
  baseDigest: Digest,
): Promise<PlanDigests> {
  const record = { seal: store.hash(`plan/${name}\n${canonicalJson(plan)}`), plan, diff };
  const digests = digestsOf(record, baseDigest);
  const options = { expectedVersion: "any" as const, fence };
  const former = await store.read(storeKeys.newestPlan(name));
  await store.write(storeKeys.plan(digests.planDigest), encode(record), options);
  await store.write(storeKeys.newestPlan(name), encode(digests.planDigest), options);
  const formerDigest = former ? DigestText.parse(decode(former.value)) : null;
  if (formerDigest !== null && formerDigest !== digests.planDigest) {
    await store.remove(storeKeys.plan(formerDigest), options);
  }
  return digests;
}

/** The approved plan, when it is the very one and its base is what it was; otherwise `stale_plan`. */
export async function loadApprovedPlan(
  { store }: OpenComponent,
  approval: { planDigest: Digest; approvalDigest: Digest },
  baseDigest: Digest,
): Promise<Json> {
  const found = await store.read(storeKeys.plan(approval.planDigest));
  if (!found) throw stale("the approved plan is no longer in the install's store");
  const record = PlanRecord.parse(decode(found.value));
  const digests = digestsOf(record, baseDigest);
  if (digests.planDigest !== approval.planDigest) throw stale("the stored plan is another one");
  if (digests.approvalDigest !== approval.approvalDigest) {
    throw stale("what it was made against (state, artifact or configuration) has changed since");
  }
  return record.plan;
}

/** Forgets the component's plan: it has been applied, or its component is gone. */
export async function removePlan({ store, fence, name }: OpenComponent): Promise<void> {
  const options = { expectedVersion: "any" as const, fence };
  const newest = await store.read(storeKeys.newestPlan(name));
  if (!newest) return;
  await store.remove(storeKeys.plan(DigestText.parse(decode(newest.value))), options);
  await store.remove(storeKeys.newestPlan(name), options);
}

function digestsOf(record: z.output<typeof PlanRecord>, baseDigest: Digest): PlanDigests {
  const planDigest = digestOfJson({ seal: record.seal, plan: record.plan });
  const diffDigest = digestOf(record.diff);
  const approvalDigest = digestOfJson({ plan: planDigest, diff: diffDigest, base: baseDigest });
  return { planDigest, diffDigest, baseDigest, approvalDigest };
}

function stale(reason: string): OperationFailure {
  return new OperationFailure(
    `Expected to apply exactly what was approved, but ${reason}. Nothing was changed; plan again.`,
    "stale_plan",
  );
}
