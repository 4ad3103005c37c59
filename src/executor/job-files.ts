/**
 * Reads the job's folder. Manifest and grant are verified here once more, with the keys that the agent
 * put beside them: an executor never acts on a document that the server did not sign.
 */
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import type { z } from "zod";
import { Fault } from "../model/fault.ts";
import { LeaseGrant, Manifest } from "../protocol/documents.ts";
import { JobCredentials, JobKeys, jobFiles, Place } from "../protocol/job-folder.ts";
import { decodePublicKey, type FindKey, verifyDocument } from "../protocol/signed-document.ts";

const fileBytesMax = 16 * 1024 * 1024;

export interface JobDocuments {
  readonly manifest: Manifest;
  readonly grant: LeaseGrant;
  readonly place: Place;
}

/** Manifest, grant and place; a `Fault` when something is missing, forged or does not belong together. */
export async function readJob(folder: string): Promise<JobDocuments> {
  const keys = JobKeys.parse(await readJson(folder, jobFiles.keys));
  const findKey: FindKey = (keyId) => {
    const key = Object.hasOwn(keys, keyId) ? keys[keyId] : undefined;
    return key === undefined ? null : decodePublicKey(key);
  };
  const manifest = await verifyDocument(
    "landfall-manifest",
    Manifest,
    (await readText(folder, jobFiles.manifest)).trim(),
    findKey,
  );
  const grant = await verifyDocument(
    "landfall-grant",
    LeaseGrant,
    (await readText(folder, jobFiles.grant)).trim(),
    findKey,
  );
  const { jobId, manifestDigest } = grant.payload;
  if (manifestDigest !== manifest.digest || jobId !== manifest.payload.jobId) {
    throw new Fault(
      "forbidden",
      `Expected a grant for the manifest of ${manifest.payload.jobId}, got one for another (${jobId}). Nothing was done.`,
    );
  }
  const place = parse(Place, await readJson(folder, jobFiles.place), jobFiles.place);
  return { manifest: manifest.payload, grant: grant.payload, place };
}

/** The credentials as they are now: the agent renews them while the job runs. */
export async function readCredentials(folder: string): Promise<JobCredentials> {
  return parse(JobCredentials, await readJson(folder, jobFiles.credentials), jobFiles.credentials);
}

function parse<Schema extends z.ZodType>(
  schema: Schema,
  value: unknown,
  name: string,
): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const keys = parsed.error.issues.map((issue) => issue.path.join(".")).join(", ");
  throw new Fault(
    "invalid",
    `Expected a valid \`${name}\` in the job's folder, got wrong keys: ${keys}.`,
  );
}

async function readJson(folder: string, name: string): Promise<unknown> {
  const text = await readText(folder, name);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Fault("invalid", `Expected JSON in \`${name}\` of the job's folder.`, {
      cause: error,
    });
  }
}

async function readText(folder: string, name: string): Promise<string> {
  const path = join(folder, name);
  const { size } = await stat(path);
  if (size > fileBytesMax) {
    throw new Fault(
      "too_large",
      `Expected at most ${fileBytesMax} bytes in \`${name}\`, got ${size}.`,
    );
  }
  return readFile(path, "utf8");
}
