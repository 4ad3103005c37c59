/** Makes jobs: the manifest is written, signed and digested once, before the job's row exists. */
import { createId } from "../model/ids.ts";
import type { JobLimits, RetryPolicy } from "../model/job.ts";
import { policyOf } from "../model/job-policy.ts";
import { digestOf } from "../model/json.ts";
import { Manifest } from "../protocol/documents.ts";
import { signDocument } from "../protocol/signed-document.ts";
import type { ServerContext } from "./context.ts";
import { buildQueue, type NewJob } from "./job-machine.ts";

/** All of a manifest but what is made here. */
export type ManifestDraft = Omit<
  Manifest,
  "version" | "jobId" | "createdAt" | "timeoutSeconds" | "limits" | "retry"
>;

const provisionPriority = 10;

/** Signs a manifest and gives the job that carries it; the caller queues it. */
export async function createJob(
  context: ServerContext,
  draft: ManifestDraft,
  { deploy, generation }: { deploy: number; generation: number },
): Promise<NewJob> {
  const now = context.now();
  const id = createId("job", now, context.random);
  const { limits, retry } = policyOf(draft.operation);
  const payload: Manifest = {
    ...draft,
    version: 1,
    jobId: id,
    createdAt: now.toISOString(),
    timeoutSeconds: limits.finishSeconds,
    limits,
    retry: { ...retry, on: [...retry.on] },
  };
  const document = await signDocument("landfall-manifest", payload, context.keys.signing);
  const digest = digestOf(payloadBytes(document));
  return { ...newJobOf(payload, { document, digest, limits, retry }), deploy, generation };
}

/** The row of a job, from its manifest; deploy and generation are the caller's to say. */
export function newJobOf(
  manifest: Manifest,
  {
    document,
    digest,
    limits,
    retry,
  }: { document: string; digest: string; limits: JobLimits; retry: RetryPolicy },
): Omit<NewJob, "deploy" | "generation"> {
  const { install, component, operation } = manifest;
  return {
    id: manifest.jobId,
    queue: install && component ? install.id : buildQueue,
    operation,
    appId: manifest.app.id,
    installId: install?.id ?? null,
    component: component?.name ?? null,
    manifest: document,
    manifestDigest: digest,
    fingerprint: manifest.fingerprint,
    artifactDigest: manifest.artifact?.digest ?? null,
    // A new install waits for its sandbox; builds of other components can wait a little longer.
    priority: operation === "provision" ? provisionPriority : 0,
    startSeconds: limits.startSeconds,
    retry,
  };
}

/** Reads a manifest that this server has signed itself. */
export function readManifest(document: string): Manifest {
  return Manifest.parse(JSON.parse(payloadBytes(document).toString()));
}

function payloadBytes(document: string): Buffer {
  return Buffer.from(document.split(".")[1] ?? "", "base64url");
}
