/** The registry's answers about imageManifests, tags and referrers. */
import { digestOf, isDigest } from "../model/json.ts";
import { collect } from "./content-stream.ts";
import {
  imageManifestBytesMax,
  mediaTypes,
  type ParsedImageManifest,
  parseImageManifest,
} from "./image-manifest.ts";
import { isTag } from "./reference.ts";
import {
  answer,
  answerBytes,
  answerJson,
  type Exchange,
  requireDigest,
  unsupported,
} from "./registry-exchange.ts";
import { RegistryRefusal, refuse } from "./registry-refusal.ts";

const tagPageMax = 1000;

/** HEAD, GET, PUT and DELETE of `/v2/<name>/manifests/<reference>`. */
export async function serveImageManifest(exchange: Exchange): Promise<void> {
  const { method, repository, route } = exchange;
  const { reference } = route;
  if (method === "PUT") return putImageManifest(exchange);
  if (!isDigest(reference) && !isTag(reference)) throw unknownManifest();
  if (method === "DELETE") {
    const removed = isDigest(reference)
      ? await repository.removeImageManifest(reference)
      : await repository.removeTag(reference, exchange.caller);
    if (!removed) throw unknownManifest();
    exchange.log({ event: "delete", repository: repository.name, reference });
    return answer(exchange, 202);
  }
  if (method !== "GET" && method !== "HEAD") throw unsupported(exchange);
  const found = await repository.findImageManifest(reference);
  const bytes = found && (await repository.readImageManifest(found.digest));
  if (!bytes) throw unknownManifest();
  answerBytes(exchange, bytes, {
    "content-type": found.mediaType,
    "docker-content-digest": found.digest,
    etag: `"${found.digest}"`,
  });
}

async function putImageManifest(exchange: Exchange): Promise<void> {
  const { request, repository, route } = exchange;
  const { reference } = route;
  const tag = isDigest(reference) ? undefined : reference;
  if (tag !== undefined && !isTag(tag)) {
    throw refuse(400, "MANIFEST_INVALID", "Expected a tag, or a digest sha256:….");
  }
  if (Number(request.headers["content-length"] ?? 0) > imageManifestBytesMax) {
    throw refuse(413, "SIZE_INVALID", `Expected at most ${imageManifestBytesMax} bytes.`);
  }
  const bytes = await collect(request.iterator({ destroyOnReturn: false }), imageManifestBytesMax);
  if (tag === undefined && digestOf(bytes) !== reference) {
    throw refuse(400, "DIGEST_INVALID", `Expected bytes with digest ${reference}.`);
  }
  const mediaType = request.headers["content-type"]?.split(";")[0]?.trim() || null;
  const parsed = parseImageManifest(bytes, mediaType);
  await checkChildren(exchange, parsed);
  const digest = await repository.putImageManifest(bytes, parsed);
  if (tag !== undefined) await repository.moveTag(tag, digest, exchange.caller);
  exchange.log({
    event: "push",
    kind: "imageManifest",
    repository: repository.name,
    digest,
    bytes: bytes.length,
    tag: tag ?? null,
  });
  answer(exchange, 201, {
    location: `/v2/${repository.name}/manifests/${digest}`,
    "docker-content-digest": digest,
    ...(parsed.subject ? { "oci-subject": parsed.subject } : {}),
  });
}

async function checkChildren({ repository }: Exchange, parsed: ParsedImageManifest): Promise<void> {
  const missing = await repository.missingChildren(parsed);
  if (missing.length === 0) return;
  throw new RegistryRefusal(
    404,
    missing.slice(0, 100).map(({ digest }) => ({
      code: "MANIFEST_BLOB_UNKNOWN",
      message: "The repository does not have this (or has it in another size). Push it first.",
      detail: { digest },
    })),
  );
}

/** GET of `/v2/<name>/tags/list`, in pages. */
export async function serveTags(exchange: Exchange): Promise<void> {
  const { method, repository, route } = exchange;
  if (method !== "GET") throw unsupported(exchange);
  if (!(await repository.exists())) {
    throw refuse(404, "NAME_UNKNOWN", "The registry does not have this repository.");
  }
  const asked = route.query.get("n");
  if (asked !== null && !/^\d{1,9}$/.test(asked)) {
    throw refuse(400, "UNSUPPORTED", "Expected `n` to be a number of tags.");
  }
  const size = Math.min(asked === null ? tagPageMax : Number(asked), tagPageMax);
  const last = route.query.get("last") ?? "";
  const after = (await repository.listTags()).filter((tag) => tag > last);
  const tags = after.slice(0, size);
  const end = tags.at(-1);
  const next = `/v2/${repository.name}/tags/list?n=${size}&last=${encodeURIComponent(end ?? "")}`;
  const hasMore = end !== undefined && after.length > tags.length;
  answerJson(
    exchange,
    { name: repository.name, tags },
    hasMore ? { link: `<${next}>; rel="next"` } : {},
  );
}

/** GET of `/v2/<name>/referrers/<digest>`. */
export async function serveReferrers(exchange: Exchange): Promise<void> {
  const { method, repository, route } = exchange;
  if (method !== "GET") throw unsupported(exchange);
  const all = await repository.listReferrers(requireDigest(route.reference));
  const artifactType = route.query.get("artifactType");
  const manifests =
    artifactType === null ? all : all.filter((entry) => entry.artifactType === artifactType);
  answerJson(
    exchange,
    { schemaVersion: 2, mediaType: mediaTypes.imageIndex, manifests },
    {
      "content-type": mediaTypes.imageIndex,
      ...(artifactType === null ? {} : { "oci-filters-applied": "artifactType" }),
    },
  );
}

function unknownManifest() {
  return refuse(404, "MANIFEST_UNKNOWN", "The repository does not have this imageManifest.");
}
