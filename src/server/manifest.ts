/** Makes jobs: the manifest is written, signed and digested once, before the job's row exists. */
import { createId } from "../model/ids.ts";
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
  const manifest = await signDocument("landfall-manifest", payload, context.keys.signing);
  const isSandboxJob = draft.component === null;
  return {
    id,
    queue: draft.install && !isSandboxJob ? draft.install.id : buildQueue,
    operation: draft.operation,
    appId: draft.app.id,
    installId: draft.install?.id ?? null,
    component: draft.component?.name ?? null,
    manifest,
    manifestDigest: digestOf(payloadBytes(manifest)),
    fingerprint: draft.fingerprint,
    artifactDigest: draft.artifact?.digest ?? null,
    deploy,
    generation,
    // A new install waits for its sandbox; builds of other components can wait a little longer.
    priority: draft.operation === "provision" ? provisionPriority : 0,
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
