/**
 * Packs a directory as a gzipped tar whose bytes depend on nothing but names and contents: sorted,
 * no times, no owners, modes 0644 or 0755. The same directory has the same digest on any machine.
 *
 * The tar is ours to fix; the deflate stream is zlib's, the same for the same version of Node. The
 * gzip header's time is 0 and its system byte is set to "unknown", which zlib would fill in.
 */
import { createHash } from "node:crypto";
import { createReadStream, type Dirent } from "node:fs";
import { open, readdir, readlink, realpath, stat } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { type Header, type Pack, pack } from "tar-stream";
import { Fault } from "../model/fault.ts";
import type { Digest } from "../model/json.ts";
import type { ContentStream } from "./content.ts";

const pieceBytes = 64 * 1024;
const gzipSystemOffset = 9;
const gzipSystemUnknown = 255;
const epoch = new Date(0);

/** The directory as a stream of gzipped tar. */
export function packDirectory(directory: string): ContentStream {
  const tar = pack();
  const feeding = addDirectory(tar, directory).then(
    () => tar.finalize(),
    (error: unknown) => tar.destroy(error instanceof Error ? error : new Error(String(error))),
  );
  return compress(tar, feeding);
}

/** Packs into a new file, and says what it became. */
export async function packDirectoryToFile(
  directory: string,
  file: string,
): Promise<{ digest: Digest; sizeBytes: number }> {
  const hash = createHash("sha256");
  let sizeBytes = 0;
  const handle = await open(file, "wx", 0o600);
  try {
    for await (const piece of packDirectory(directory)) {
      hash.update(piece);
      sizeBytes += piece.length;
      await handle.writeFile(piece);
    }
  } finally {
    await handle.close();
  }
  return { digest: `sha256:${hash.digest("hex")}`, sizeBytes };
}

async function* compress(tar: Pack, feeding: Promise<unknown>): AsyncGenerator<Uint8Array> {
  const gzip = createGzip();
  const piping = pipeline(
    Readable.from(inEqualPieces(tar as AsyncIterable<unknown> as AsyncIterable<Buffer>), {
      objectMode: false,
    }),
    gzip,
  );
  piping.catch(() => undefined);
  let offset = 0;
  for await (const piece of gzip as AsyncIterable<Buffer>) {
    if (offset <= gzipSystemOffset && gzipSystemOffset < offset + piece.length) {
      piece[gzipSystemOffset - offset] = gzipSystemUnknown;
    }
    offset += piece.length;
    yield piece;
  }
  await Promise.all([piping, feeding]);
}

// What deflate makes may depend on how its input is cut, and reads are cut as the system likes.
async function* inEqualPieces(stream: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let piece = Buffer.allocUnsafe(pieceBytes);
  let filled = 0;
  for await (const part of stream) {
    for (let offset = 0; offset < part.length; ) {
      const count = part.copy(piece, filled, offset);
      offset += count;
      filled += count;
      if (filled < pieceBytes) continue;
      yield piece;
      piece = Buffer.allocUnsafe(pieceBytes);
      filled = 0;
    }
  }
  if (filled > 0) yield piece.subarray(0, filled);
}

async function addDirectory(tar: Pack, directory: string): Promise<void> {
  const root = await realpath(directory);
  if (!(await stat(root)).isDirectory()) {
    throw new Fault("invalid", `Expected a directory to pack, got the file ${directory}.`);
  }
  await addEntries(tar, root, root);
}

async function addEntries(tar: Pack, root: string, folder: string): Promise<void> {
  const entries = await readdir(folder, { withFileTypes: true });
  // By bytes, not by locale. A folder comes before what is in it.
  entries.sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
  for (const entry of entries) await addEntry(tar, root, folder, entry);
}

async function addEntry(tar: Pack, root: string, folder: string, entry: Dirent): Promise<void> {
  const path = join(folder, entry.name);
  const name = relative(root, path).split(sep).join("/");
  if (entry.name.includes("\uFFFD")) {
    throw new Fault("invalid", `Expected names in UTF-8, got \`${name}\`. Rename the file.`);
  }
  if (entry.isDirectory()) {
    await addVoid(tar, { name, type: "directory", mode: 0o755 });
    await addEntries(tar, root, path);
  } else if (entry.isSymbolicLink()) {
    const linkname = await readlink(path);
    await checkLink(root, path, name, linkname);
    await addVoid(tar, { name, type: "symlink", linkname, mode: 0o777 });
  } else if (entry.isFile()) {
    await addFile(tar, path, name);
  } else {
    throw new Fault(
      "invalid",
      `Expected files, directories and links, but \`${name}\` is a device, socket or pipe. Remove it.`,
    );
  }
}

async function addFile(tar: Pack, path: string, name: string): Promise<void> {
  const handle = await open(path, "r");
  const { size, mode } = await handle.stat();
  const header = { name, type: "file", size, mode: mode & 0o100 ? 0o755 : 0o644, mtime: epoch };
  if (size === 0) {
    await handle.close();
    return addVoid(tar, { ...header, type: "file" });
  }
  // The entry fails with "Size mismatch" when the file changes while it is packed.
  const entry = tar.entry({ ...header, type: "file" });
  await pipeline(createReadStream("", { fd: handle, highWaterMark: pieceBytes }), entry);
}

function addVoid(tar: Pack, header: Pick<Header, "name"> & Partial<Header>): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = (error?: Error | null) => (error ? reject(error) : resolve());
    const dated = { ...header, mtime: epoch };
    if (header.type === "file") tar.entry(dated, Buffer.alloc(0), done);
    else tar.entry(dated, done);
  });
}

async function checkLink(root: string, path: string, name: string, linkname: string) {
  const target = await realpath(path).catch(() => null);
  const inside = target !== null && (target === root || target.startsWith(root + sep));
  if (inside && !linkname.startsWith("/")) return;
  throw new Fault(
    "invalid",
    `Expected links that lead to something inside the directory, but \`${name}\` leads to \`${linkname}\`. Replace it by a file.`,
  );
}
