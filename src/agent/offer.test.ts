/** The decision over an offer, for any history that an agent may have. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { AgentId, InstallId, JobId } from "../model/ids.ts";
import { compareEpochs } from "../model/job.ts";
import type { Digest } from "../model/json.ts";
import { decideOffer, type OfferView, sameTry, type VerifiedOffer } from "./offer.ts";

const agentId = `agt_${"a".repeat(24)}` as AgentId;
const serverTime = "2030-01-01T00:00:00.000Z";
const digest = (letter: string) => `sha256:${letter.repeat(64)}` as Digest;
const jobIds = ["1", "2"].map((digit) => `job_${digit.repeat(24)}` as JobId);

const epoch = fc.record({
  generation: fc.integer({ min: 1, max: 2 }),
  n: fc.integer({ min: 1, max: 3 }),
});
const key = fc.record({ jobId: fc.constantFrom(...jobIds), epoch });
const component = fc.constantFrom("ins/web", "ins/database", null);
const manifestDigest = fc.constantFrom(digest("a"), digest("b"));
const known = fc.record({ key, component, manifestDigest, over: fc.boolean() });
const view: fc.Arbitrary<OfferView> = fc.record({
  agentId: fc.constant(agentId),
  serverNowMs: fc.constant(Date.parse(serverTime)),
  newestEpoch: fc.option(epoch),
  jobs: fc.array(known, { maxLength: 4 }),
  freeSlots: fc.integer({ min: 0, max: 2 }),
});
const offer = fc.record({ key, component, manifestDigest }).map(offerOf);

test("whatever is launched is new, has a slot, and is alone on its job and component", () => {
  fc.assert(
    fc.property(offer, view, (given, seen) => {
      const decision = decideOffer(given, seen);
      if (decision.kind !== "launch") return;

      assert(seen.freeSlots > 0);
      assert(!seen.newestEpoch || compareEpochs(given.key.epoch, seen.newestEpoch) > 0);
      for (const job of seen.jobs) {
        const rival =
          job.key.jobId === given.key.jobId ||
          (job.component !== null && job.component === given.component);
        assert(!rival || job.over, "no rival is alive");
        const cleared = decision.clear.some((other) => sameTry(other, job.key));
        assert(!rival || cleared, "every rival is proved gone first");
      }
    }),
    { numRuns: 2000 },
  );
});

test("the same try is answered again only for the same manifest", () => {
  fc.assert(
    fc.property(offer, view, (given, seen) => {
      if (decideOffer(given, seen).kind !== "again") return;
      const same = seen.jobs.filter((job) => sameTry(job.key, given.key));
      assert(same.some((job) => job.manifestDigest === given.manifestDigest));
    }),
    { numRuns: 2000 },
  );
});

test("a grant that is much older than its lease is refused, by the server's time alone", () => {
  const given = offerOf({ key: { jobId: jobIds[0] as JobId, epoch: { generation: 1, n: 1 } } });
  const at = (serverNowMs: number): OfferView => ({
    agentId,
    serverNowMs,
    newestEpoch: null,
    jobs: [],
    freeSlots: 1,
  });

  const fresh = decideOffer(given, at(Date.parse(serverTime) + 60_000));
  const old = decideOffer(given, at(Date.parse(serverTime) + 91_000));

  assert.equal(fresh.kind, "launch");
  assert.deepEqual([old.kind, old.kind === "refuse" && old.code], ["refuse", "replayed"]);
});

function offerOf(
  parts: Pick<VerifiedOffer, "key"> & Partial<Pick<VerifiedOffer, "component" | "manifestDigest">>,
): VerifiedOffer {
  const { key, component = null, manifestDigest = digest("a") } = parts;
  const manifest: VerifiedOffer["manifest"] = {
    version: 1,
    jobId: key.jobId,
    operation: "apply",
    createdAt: serverTime,
    app: { id: `app_${"0".repeat(24)}` as VerifiedOffer["manifest"]["app"]["id"], name: "app" },
    install: { id: `ins_${"0".repeat(24)}` as InstallId, name: "acme" },
    plugin: "process",
    component: null,
    sandbox: null,
    source: null,
    artifact: null,
    inputs: {},
    dependencies: {},
    approval: null,
    fingerprint: null,
    timeoutSeconds: 60,
  };
  const { jobId, epoch } = key;
  const grant = {
    version: 1 as const,
    jobId,
    epoch,
    manifestDigest,
    agentId,
    serverTime,
    leaseSeconds: 30,
  };
  return { key, component, manifestDigest, manifest, grant };
}
