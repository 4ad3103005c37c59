/**
 * A repository of a registry, over HTTP, as source and target of content.
 *
 * Nothing that a registry says about content is believed: sizes are bounded, digests verified on
 * every read. A download that breaks goes on where it stopped; an upload that breaks starts again.
 */
import type { IncomingMessage } from "node:http";
import type { Digest } from "../model/json.ts";
import type { ContentTarget, Descriptor, OpenContent } from "./content.ts";
import { checkSize, collect, verifyContent } from "./content-stream.ts";
import {
  createTransport,
  readAnswer,
  type Transport,
  type TransportOptions,
} from "./http-transport.ts";
import {
  imageManifestBytesMax,
  imageManifestTypes,
  isImageManifestType,
  mediaTypes,
  parseImageManifest,
} from "./image-manifest.ts";
import { requireRepositoryName } from "./reference.ts";
import { requireStatus } from "./registry-answer.ts";
import { download } from "./registry-download.ts";

export interface RegistryClientOptions extends TransportOptions {
  /** Such as `guestbook/web`. */
  readonly repository: string;
}

export interface RegistryClient extends ContentTarget {
  /** Closes the kept-alive connections. */
  close(): void;
}

const accept = [...imageManifestTypes].join(", ");
const referrerPagesMax = 100;

interface Remote {
  readonly transport: Transport;
  /** `/v2/<repository>`. */
  readonly root: string;
  /** How errors name the repository. */
  readonly place: string;
}

/** The repository at this address; opens no connection until it is used. */
export function createRegistryClient(options: RegistryClientOptions): RegistryClient {
  const repository = requireRepositoryName(options.repository);
  const transport = createTransport(options);
  const place = `the registry ${transport.origin}/${repository}`;
  const remote: Remote = { transport, root: `/v2/${repository}`, place };
  return {
    name: place,
    async stat(digest) {
      const response = await head(remote, `${remote.root}/manifests/${digest}`);
      if (!response) return null;
      const mediaType = response.headers["content-type"]?.split(";")[0]?.trim() ?? "";
      return { mediaType, digest, size: Number(response.headers["content-length"]) };
    },
    open: async (content) =>
      verifyContent(content, download(transport, pathOf(remote, content), content, place), place),
    referrers: (digest) => listReferrers(remote, digest),
    async has(content) {
      const response = await head(remote, pathOf(remote, content));
      return Number(response?.headers["content-length"]) === content.size;
    },
    push: (content, open) =>
      isImageManifestType(content.mediaType)
        ? pushImageManifest(remote, content, open)
        : pushBlob(remote, content, open),
    close: () => transport.close(),
  };
}

function pathOf({ root }: Remote, content: Descriptor): string {
  const kind = isImageManifestType(content.mediaType) ? "manifests" : "blobs";
  return `${root}/${kind}/${content.digest}`;
}

async function head({ transport, place }: Remote, path: string): Promise<IncomingMessage | null> {
  return transport.retry("tell what it has", async () => {
    const response = await transport.send({ method: "HEAD", path, headers: { accept } });
    response.resume();
    if (response.statusCode === 404) return null;
    await requireStatus(response, [200], place, "tell what it has", null);
    return response;
  });
}

async function listReferrers(remote: Remote, digest: Digest): Promise<Descriptor[]> {
  const { transport, root, place } = remote;
  const found: Descriptor[] = [];
  let path: string | null = `${root}/referrers/${digest}`;
  for (let page = 0; path !== null && page < referrerPagesMax; page++) {
    const current: string = path;
    path = await transport.retry("list referrers", async () => {
      const response = await transport.send({ method: "GET", path: current });
      // A registry without this API answers 404.
      if (response.statusCode === 404) return dismiss(response);
      await requireStatus(response, [200], place, "list referrers", digest);
      const bytes = await readAnswer(response, imageManifestBytesMax);
      found.push(...parseImageManifest(bytes, mediaTypes.imageIndex).imageManifests);
      return nextPage(response.headers.link);
    });
  }
  return found;
}

async function pushImageManifest(
  remote: Remote,
  content: Descriptor,
  open: OpenContent,
): Promise<void> {
  const { transport, place } = remote;
  const bytes = await collect(
    verifyContent(content, await open(), "the source"),
    imageManifestBytesMax,
  );
  await transport.retry("take an imageManifest", async () => {
    const response = await transport.send({
      method: "PUT",
      path: pathOf(remote, content),
      headers: { "content-type": content.mediaType, "content-length": bytes.length },
      body: oneByOne(bytes),
    });
    await requireStatus(response, [201], place, "take an imageManifest", content.digest);
    response.resume();
  });
}

async function pushBlob(remote: Remote, content: Descriptor, open: OpenContent): Promise<void> {
  const { transport, place } = remote;
  await transport.retry("take a blob", async () => {
    const location = await startUpload(remote, content.digest);
    const stream = checkSize(content, await open(), "the source");
    const response = await transport.send({
      method: "PUT",
      path: `${location}${location.includes("?") ? "&" : "?"}digest=${content.digest}`,
      headers: { "content-type": "application/octet-stream", "content-length": content.size },
      body: stream,
    });
    await requireStatus(response, [201], place, "take a blob", content.digest);
    response.resume();
  });
}

async function startUpload({ transport, root, place }: Remote, digest: Digest): Promise<string> {
  const response = await transport.send({
    method: "POST",
    path: `${root}/blobs/uploads/`,
    headers: { "content-length": 0 },
  });
  await requireStatus(response, [202], place, "start an upload", digest);
  response.resume();
  return response.headers.location ?? "";
}

function nextPage(link: string | string[] | undefined): string | null {
  const [, path] = /<([^>]+)>\s*;\s*rel="?next"?/.exec(String(link ?? "")) ?? [];
  return path ?? null;
}

async function* oneByOne(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

function dismiss(response: IncomingMessage): null {
  response.resume();
  return null;
}
