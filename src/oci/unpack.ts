/**
 * Unpacks a gzipped tar that may have been made by an enemy: whole or not at all, and nothing
 * outside the target.
 *
 * Everything is written into a new folder beside the target, which takes the target's name at the
 * end. No entry is written through a link: links are made last, none below another, and each must lead
 * to something inside. Owners, times and special bits are not taken over.
 */
import { createReadStream } from "node:fs";
import { chmod, mkdir, mkdtemp, open, realpath, rename, rm, symlink } from "node:fs/promises";
import { dirname, isAbsolute, join, sep } from "node:path";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { type ExtractEvents, extract } from "tar-stream";
import { describeError, Fault } from "../model/fault.ts";
import type { ContentStream } from "./content.ts";
import { ContentFault, isBadContent } from "./content-fault.ts";
import { ensureDirectory } from "./durable-file.ts";

export interface UnpackLimits {
  /** Of the whole tar, uncompressed. */
  readonly bytesMax: number;
  readonly entriesMax: number;
}

export const defaultUnpackLimits: UnpackLimits = { bytesMax: 4 * 1024 ** 3, entriesMax: 200_000 };

const pathBytesMax = 4096;
const nameBytesMax = 255;

type Entry = ExtractEvents["entry"][1];

interface Link {
  readonly name: string;
  readonly target: string;
}

/** Unpacks a stream, or a file given by its path, into a directory that is new or empty. */
export async function unpack(
  source: ContentStream | string,
  targetDirectory: string,
  limits: Partial<UnpackLimits> = {},
): Promise<void> {
  await ensureDirectory(dirname(targetDirectory));
  const folder = await mkdtemp(`${targetDirectory}.partial-`);
  try {
    const stream = typeof source === "string" ? createReadStream(source) : Readable.from(source);
    const links = await writeEntries(stream, folder, { ...defaultUnpackLimits, ...limits });
    await makeLinks(folder, links);
    await chmod(folder, 0o755);
    await moveInto(folder, targetDirectory);
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
}

async function writeEntries(
  stream: Readable,
  folder: string,
  limits: UnpackLimits,
): Promise<Link[]> {
  const tar = extract();
  let failure: unknown = null;
  const feeding = pipeline(stream, createGunzip(), limitBytes(limits.bytesMax), tar).catch(
    (error: unknown) => {
      failure ??= error;
    },
  );
  const links: Link[] = [];
  let entries = 0;
  try {
    for await (const entry of tar) {
      if (++entries > limits.entriesMax) throw tooLarge(`at most ${limits.entriesMax} entries`);
      const link = await writeEntry(folder, entry);
      if (link) links.push(link);
    }
  } catch (error) {
    failure ??= error;
    tar.destroy();
  }
  await feeding;
  if (failure !== null) throw asContentFault(failure);
  return links;
}

async function writeEntry(folder: string, entry: Entry): Promise<Link | null> {
  const { type, name: given, linkname, mode } = entry.header;
  const name = checkName(given);
  if (type === "symlink") {
    entry.resume();
    if (name === "") throw malformed("a link with a name", given);
    return { name, target: linkname ?? "" };
  }
  if (type === "directory") {
    entry.resume();
    await mkdir(join(folder, name), { recursive: true, mode: 0o755 });
    await chmod(join(folder, name), 0o755);
    return null;
  }
  if (type !== "file" && type !== "contiguous-file") {
    throw malformed("files, directories and links inside", `\`${given}\` of type ${type}`);
  }
  if (name === "") throw malformed("a file with a name", given);
  await writeFile(join(folder, name), entry, (mode ?? 0) & 0o100 ? 0o755 : 0o644);
  return null;
}

async function writeFile(path: string, entry: Entry, mode: number): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  // "wx": a name that comes twice is refused, whatever the file system thinks equal.
  const handle = await open(path, "wx", mode);
  try {
    for await (const piece of entry as AsyncIterable<Uint8Array>) await handle.writeFile(piece);
    await handle.chmod(mode);
  } finally {
    await handle.close();
  }
}

/** The entry's path without `./` and trailing slash; anything that could lead out is refused. */
function checkName(given: string): string {
  const parts = given.split("/").filter((part) => part !== "" && part !== ".");
  const sound =
    !isAbsolute(given) &&
    !given.includes("\0") &&
    !given.includes("\\") &&
    Buffer.byteLength(given) <= pathBytesMax &&
    parts.every((part) => part !== ".." && Buffer.byteLength(part) <= nameBytesMax);
  if (!sound) throw malformed("names inside the directory", JSON.stringify(given.slice(0, 200)));
  return parts.join("/");
}

async function makeLinks(folder: string, links: readonly Link[]): Promise<void> {
  const root = await realpath(folder);
  const names = new Set(links.map(({ name }) => name));
  for (const { name, target } of links) {
    // Otherwise a link that leads out would be written through, before anybody looked where it leads.
    if (foldersAbove(name).some((above) => names.has(above))) {
      throw malformed("no entry below a link", `\`${name}\``);
    }
    if (isAbsolute(target) || target === "" || target.includes("\0")) {
      throw malformed("links inside the directory", `\`${name}\` leading to \`${target}\``);
    }
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await symlink(target, join(folder, name)).catch((error: unknown) => {
      throw malformed("each name once", `\`${name}\` (${describeError(error)})`);
    });
  }
  // Only now: a link may lead through another one.
  for (const { name, target } of links) {
    const real = await realpath(join(folder, name)).catch(() => null);
    if (real !== null && (real === root || real.startsWith(root + sep))) continue;
    throw malformed("links inside the directory", `\`${name}\` leading to \`${target}\``);
  }
}

/** `a` and `a/b` for `a/b/c`. */
function foldersAbove(name: string): string[] {
  const parts = name.split("/");
  return parts.slice(1).map((_, index) => parts.slice(0, index + 1).join("/"));
}

async function moveInto(folder: string, target: string): Promise<void> {
  try {
    await rename(folder, target);
  } catch (cause) {
    throw new Fault(
      "conflict",
      `Expected ${target} to be new or empty, so that it can be unpacked there. Remove it first.`,
      { cause },
    );
  }
}

function limitBytes(bytesMax: number): Transform {
  let bytes = 0;
  return new Transform({
    transform(piece: Buffer, _encoding, done) {
      bytes += piece.length;
      if (bytes > bytesMax) done(tooLarge(`at most ${bytesMax} bytes, uncompressed`));
      else done(null, piece);
    },
  });
}

function tooLarge(expected: string): ContentFault {
  return new ContentFault(
    "too_large",
    null,
    `Expected a packed directory of ${expected}, got more. Pack less, or raise the limit.`,
  );
}

function malformed(expected: string, got: string): ContentFault {
  return new ContentFault(
    "malformed",
    null,
    `Expected a packed directory with ${expected}, got ${got}. Nothing of it was kept; pack it again.`,
  );
}

// Errors of zlib and tar-stream are about the content; those of the disk and the network are not.
function asContentFault(error: unknown): unknown {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (isBadContent(error) || error instanceof Fault) return error;
  if (code === "EEXIST" || code === "ENOTDIR" || code === "EISDIR") {
    return malformed("each name once", describeError(error));
  }
  if (code.startsWith("E") && !code.startsWith("ERR_")) return error;
  return new ContentFault(
    "malformed",
    null,
    `Expected a gzipped tar, got bytes that cannot be read as one: ${describeError(error)}. Pack it again.`,
    { cause: error },
  );
}
