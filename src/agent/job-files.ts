/**
 * The agent's side of a job's folder: made whole before the launch, its credentials renewed in place,
 * removed at the end.
 */
import { constants } from "node:fs";
import { lstat, mkdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { flushFolder, replaceFile, writeNewFile } from "../files/replace-file.ts";
import { errorCode } from "../model/file-fault.ts";
import { frameBytesMax } from "../protocol/frames.ts";
import { type JobCredentials, jobFiles, type Place } from "../protocol/job-folder.ts";
import { openOwn, readText } from "./foreign-file.ts";

/** The most of `stderr.log` that is ever told to the server. */
const lastWordsBytesMax = 2048;
const stderrBytesMax = 4 * 1024 * 1024;

export interface JobFolderContent {
  readonly manifest: string;
  readonly grant: string;
  readonly keys: { readonly [keyId: string]: string };
  readonly place: Place;
  readonly credentials: JobCredentials;
}

/** Makes the folder with everything the executor reads, flushed to disk. */
export async function makeJobFolder(folder: string, content: JobFolderContent): Promise<void> {
  await mkdir(folder, { mode: 0o700 });
  await mkdir(join(folder, jobFiles.work), { mode: 0o700 });
  const files: [string, string][] = [
    [jobFiles.manifest, content.manifest],
    [jobFiles.grant, content.grant],
    [jobFiles.keys, JSON.stringify(content.keys)],
    [jobFiles.place, JSON.stringify(content.place)],
    [jobFiles.credentials, JSON.stringify(content.credentials)],
  ];
  await Promise.all(files.map(([name, text]) => writeNewFile(join(folder, name), text)));
  await flushFolder(folder);
  await flushFolder(dirname(folder));
}

/** Replaces the credentials in one step, so that the executor reads the old ones or the new ones. */
export function replaceCredentials(folder: string, credentials: JobCredentials): Promise<void> {
  return replaceFile(join(folder, jobFiles.credentials), JSON.stringify(credentials));
}

/** The signed manifest as it lies there, for a job that an older agent launched; null without one. */
export function readManifest(folder: string): Promise<string | null> {
  return readText(join(folder, jobFiles.manifest), frameBytesMax);
}

/** What changes in the folder whenever the executor gives a sign of life. */
export async function readHeartbeat(folder: string): Promise<string> {
  try {
    const { mtimeMs, ctimeMs } = await lstat(join(folder, jobFiles.heartbeat));
    return `${mtimeMs} ${ctimeMs}`;
  } catch (error) {
    if (errorCode(error) === "ENOENT") return "none";
    throw error;
  }
}

/** Removes the folder; an executor must be proved gone first. */
export function removeJobFolder(folder: string): Promise<void> {
  return rm(folder, { recursive: true, force: true, maxRetries: 3 });
}

/** The end of what the executor itself printed, for the reason of a loss. */
export async function readLastWords(folder: string): Promise<string> {
  await using file = await openOwn(join(folder, jobFiles.stderr), constants.O_RDONLY);
  if (!file) return "";
  const { size } = await file.stat();
  const buffer = Buffer.alloc(Math.min(size, lastWordsBytesMax));
  const { bytesRead } = await file.read(buffer, 0, buffer.length, size - buffer.length);
  return buffer.toString("utf8", 0, bytesRead).trim();
}

/** Keeps what an executor prints from filling the disk: beyond the limit it starts anew. */
export async function boundStderr(folder: string): Promise<void> {
  await using file = await openOwn(join(folder, jobFiles.stderr), constants.O_RDWR);
  if (file && (await file.stat()).size > stderrBytesMax) await file.truncate(0);
}
