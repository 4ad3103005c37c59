/**
 * The short-lived secrets of one try of a job: made when it is offered, sent with the offer, kept
 * nowhere. Every token that is made is an event.
 */
import { createId } from "../../model/ids.ts";
import type { Manifest } from "../../protocol/documents.ts";
import type { JobCredentials } from "../../protocol/job-folder.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import { signJobToken, type TokenScope } from "../../protocol/job-token.ts";
import type { ServerContext } from "../context.ts";
import type { Sql } from "../database.ts";
import { insertEnrolmentCode } from "../enrolment.ts";
import { recordEvent } from "../event-queue.ts";

export const tokenMinutes = 10;

/** Makes the credentials that an operation needs, and no more. */
export async function createCredentials(
  context: ServerContext,
  sql: Sql,
  manifest: Manifest,
  job: JobKey,
): Promise<JobCredentials> {
  const access = scopesOf(manifest);
  const isProvision = manifest.operation === "provision";
  return {
    vendorRegistry:
      access.length > 0
        ? { url: context.publicUrl, token: await createToken(context, sql, manifest, job, access) }
        : null,
    sourceUrl: manifest.source
      ? `${context.publicUrl}/api/sources/${manifest.source.digest}`
      : null,
    enrolment:
      isProvision && manifest.install
        ? {
            serverUrl: context.publicUrl,
            code: (await insertEnrolmentCode(context, sql, "install", manifest.install.id)).code,
          }
        : null,
  };
}

/** True when the job holds a token that must be renewed while it runs. */
export function holdsToken(manifest: Manifest): boolean {
  return scopesOf(manifest).length > 0;
}

function scopesOf({ operation, artifact, source }: Manifest): TokenScope[] {
  if (operation === "sync" && artifact) {
    return [{ kind: "repository", name: artifact.repository, actions: ["pull"] }];
  }
  if (operation !== "build" || !artifact) return [];
  const push: TokenScope = {
    kind: "repository",
    name: artifact.repository,
    actions: ["pull", "push"],
  };
  return source ? [push, { kind: "source", name: source.digest, actions: ["pull"] }] : [push];
}

async function createToken(
  context: ServerContext,
  sql: Sql,
  manifest: Manifest,
  job: JobKey,
  access: readonly TokenScope[],
): Promise<string> {
  const now = context.now();
  const tokenId = createId("tok", now, context.random);
  await recordEvent(sql, {
    kind: "token.signed",
    actor: "server",
    installId: manifest.install?.id ?? null,
    jobId: job.jobId,
    component: manifest.component?.name ?? null,
    data: { token: tokenId, access, minutes: tokenMinutes, epoch: job.epoch },
  });
  return signJobToken(context.keys.signing, { job, tokenId, access, now, minutes: tokenMinutes });
}
