/** What the API's routes do: ask the server's functions, answer with a view. No rule lives here. */
import { Readable } from "node:stream";
import type { z } from "zod";
import { Fault, isFault } from "../../model/fault.ts";
import type { Digest } from "../../model/json.ts";
import type {
  CodeRequest,
  CreateInstall,
  DeployRequest,
  InstallView,
  JobView,
  SyncAnswer,
  SyncRequest,
} from "../../protocol/api.ts";
import type { EnrolmentAnswer, EnrolmentRequest } from "../../protocol/enrolment.ts";
import { verifyJobToken } from "../../protocol/job-token.ts";
import { decodePublicKey } from "../../protocol/signed-document.ts";
import { syncApp } from "../apps.ts";
import type { ServerContext } from "../context.ts";
import { createEnrolmentCode, enrolAgent } from "../enrolment.ts";
import { createInstall, deleteInstall, deployInstall } from "../installs.ts";
import { cancelJob } from "../jobs.ts";
import { isJobFinished } from "../log-chunks.ts";
import { findInstallId, listEvents, listJobs, viewInstallById, viewJob } from "../views.ts";
import { readAuthorization } from "./auth.ts";
import { streamLog } from "./log-stream.ts";
import type { Call } from "./route.ts";
import type { EventsQuery, JobsQuery, LogsQuery } from "./schemas.ts";

type None = unknown;

export const sourceBytesMax = 256 * 1024 * 1024;

/** Stores an uploaded source; the same again is harmless. */
export async function uploadSource(
  call: Call<{ digest: Digest }, None, None>,
): Promise<Record<string, never>> {
  const { services, params, request, actor } = call;
  const { blobs, database } = services.context;
  const announced = Number(request.headers["content-length"] ?? 0);
  if (announced > sourceBytesMax) {
    throw new Fault(
      "too_large",
      `Expected at most ${sourceBytesMax} bytes, got ${announced}. Leave large files out of the source folder.`,
    );
  }
  const { sizeBytes } = await blobs.writeStream(sourceKey(params.digest), request.raw, {
    digest: params.digest,
    sizeBytesMax: sourceBytesMax,
  });
  await database.transaction(actor, (sql) =>
    sql.query("insert into sources (digest, size_bytes) values ($1, $2) on conflict do nothing", [
      params.digest,
      sizeBytes,
    ]),
  );
  return {};
}

/** Hands a source to the build job whose token names it. */
export async function downloadSource(call: Call<{ digest: Digest }, None, None>): Promise<unknown> {
  const { services, params, request, reply } = call;
  await requireSourceScope(call);
  const blob = await services.context.blobs.openStream(sourceKey(params.digest));
  if (!blob)
    throw new Fault("not_found", `Expected an uploaded source, but ${params.digest} is not here.`);
  request.raw.once("close", () => {
    if (blob.stream instanceof Readable) blob.stream.destroy();
  });
  return reply.type("application/gzip").header("content-length", blob.sizeBytes).send(blob.stream);
}

async function requireSourceScope({
  services,
  params,
  request,
}: Call<{ digest: Digest }, None, None>): Promise<void> {
  const { keys, now } = services.context;
  const token = readAuthorization(request, "Bearer");
  try {
    if (token === null) {
      throw new Fault(
        "unauthorized",
        "Expected a job token in `Authorization: Bearer …`, got none.",
      );
    }
    const findKey = (keyId: string) => {
      const publicKey = Object.hasOwn(keys.publicKeys, keyId) ? keys.publicKeys[keyId] : undefined;
      return publicKey === undefined ? null : decodePublicKey(publicKey);
    };
    const { access } = await verifyJobToken(token, findKey, now());
    const isAllowed = access.some(
      ({ kind, name, actions }) =>
        kind === "source" && name === params.digest && actions.includes("pull"),
    );
    if (!isAllowed) {
      throw new Fault(
        "forbidden",
        "Expected a job token for this source, got one for something else.",
      );
    }
  } catch (error) {
    if (token !== null && isFault(error)) {
      await services.refusals.record(request, "job token does not open this source");
    }
    throw error;
  }
}

/** Takes an app's description. */
export function syncDescribedApp({
  services,
  actor,
  body,
}: Call<None, None, SyncRequest>): Promise<SyncAnswer> {
  return syncApp(services.context, actor, body);
}

/** Creates an install, and shows it. */
export async function createNewInstall({
  services,
  actor,
  body,
}: Call<None, None, z.output<typeof CreateInstall>>): Promise<InstallView> {
  const { context } = services;
  return viewInstallById(context, await createInstall(context, actor, body));
}

/** Shows an install, the newest deleted one too. */
export async function showInstall({
  services,
  params,
}: Call<{ name: string }, None, None>): Promise<InstallView> {
  const { context } = services;
  return viewInstallById(context, await findInstallId(context.database, params.name));
}

/** Moves an install to a release, and shows it. */
export async function deployToInstall({
  services,
  actor,
  params,
  body,
}: Call<{ name: string }, None, z.output<typeof DeployRequest>>): Promise<InstallView> {
  const { context } = services;
  const release = body.release ?? null;
  return viewInstallById(context, await deployInstall(context, actor, params.name, release));
}

/** Begins to remove an install, and shows it. */
export async function removeInstall({
  services,
  actor,
  params,
}: Call<{ name: string }, None, None>): Promise<InstallView> {
  const { context } = services;
  return viewInstallById(context, await deleteInstall(context, actor, params.name));
}

/** One page of jobs. */
export async function pageJobs({
  services,
  query,
}: Call<None, z.output<typeof JobsQuery>, None>): Promise<{
  jobs: JobView[];
  next: string | null;
}> {
  const { database } = services.context;
  const { install, state = null, after = null, limit } = query;
  return listJobs(database, {
    installId: await optionalInstall(services.context, install),
    state,
    after,
    limit,
  });
}

/** The lines of a job, as they come. */
export async function sendLogs({
  services,
  params,
  query,
  reply,
  signal,
}: Call<{ id: string }, z.output<typeof LogsQuery>, None>): Promise<unknown> {
  // Asked first, so that an unknown job is an error and not an empty answer.
  await isJobFinished(services.context, params.id);
  const follow = query.follow === "1" || query.follow === "true";
  const lines = streamLog(services.context, params.id, { after: query.after, follow, signal });
  return reply.type("application/x-ndjson").send(Readable.from(lines));
}

/** Asks for a job's end, and shows it. */
export async function cancelOneJob({
  services,
  actor,
  params,
}: Call<{ id: string }, None, None>): Promise<JobView> {
  await cancelJob(services.context, actor, params.id);
  return viewJob(services.context.database, params.id);
}

/** One page of events. */
export async function pageEvents({
  services,
  query,
}: Call<None, z.output<typeof EventsQuery>, None>) {
  const { install, job = null, after, limit } = query;
  const installId = await optionalInstall(services.context, install);
  return listEvents(services.context.database, { installId, jobId: job, after, limit });
}

/** Makes an enrolment code. */
export function makeCode({
  services,
  actor,
  body,
}: Call<None, None, z.output<typeof CodeRequest>>) {
  const { role, install = null } = body;
  return createEnrolmentCode(services.context, actor, { role, installName: install });
}

/** Trades an enrolment code for an agent's identity; the code is judged, and its refusal told, there. */
export async function enrol({
  services,
  body,
  request,
}: Call<None, None, z.output<typeof EnrolmentRequest>>): Promise<EnrolmentAnswer> {
  const code = readAuthorization(request, "Enrolment");
  if (code === null) {
    throw new Fault(
      "unauthorized",
      "Expected an enrolment code in `Authorization: Enrolment …`, got none.",
    );
  }
  services.refusals.admitEnrolment(request);
  try {
    return await enrolAgent(services.context, code, body.publicKey);
  } catch (error) {
    if (isFault(error, "unauthorized")) services.refusals.countEnrolment(request);
    throw error;
  }
}

async function optionalInstall(
  context: ServerContext,
  name: string | undefined,
): Promise<string | null> {
  return name === undefined ? null : findInstallId(context.database, name);
}

function sourceKey(digest: Digest): string {
  return `sources/${digest.replace(":", "/")}`;
}
