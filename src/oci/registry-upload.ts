/** The registry's answers about uploads: start, mount, add a part, finish, ask, cancel. */

import { isRepositoryName } from "./reference.ts";
import {
  answer,
  type Exchange,
  type Headers,
  requireDigest,
  unsupported,
} from "./registry-exchange.ts";
import { refuse } from "./registry-refusal.ts";
import type { Upload } from "./upload-session.ts";

const contentRangeForm = /^(?:bytes )?(\d{1,15})-(\d{1,15})$/;

/** POST of `/v2/<name>/blobs/uploads/`: a whole blob, a mount, or the start of a session. */
export async function startUpload(exchange: Exchange): Promise<void> {
  const { method, route, uploads, repository } = exchange;
  if (method !== "POST") throw unsupported(exchange);
  if (route.query.has("mount") && (await mount(exchange))) return;
  const digest = route.query.has("digest") ? requireDigest(route.query.get("digest")) : null;
  const upload = await uploads.start(repository.name);
  if (digest === null) return answer(exchange, 202, progress(upload));
  try {
    await uploads.append(upload, bodyOf(exchange));
  } catch (error) {
    // Nobody knows this session's id, so nobody could go on with it.
    await uploads.cancel(upload).catch(() => undefined);
    throw error;
  }
  await finish(exchange, upload);
}

/** PATCH, PUT, GET and DELETE of `/v2/<name>/blobs/uploads/<id>`. */
export async function serveUpload(exchange: Exchange): Promise<void> {
  const { method, route, uploads, repository } = exchange;
  const upload = uploads.require(repository.name, route.reference);
  switch (method) {
    case "GET":
      return answer(exchange, 204, progress(upload));
    case "DELETE":
      await uploads.cancel(upload);
      return answer(exchange, 204);
    case "PATCH":
      checkRange(exchange, upload);
      await uploads.append(upload, bodyOf(exchange));
      return answer(exchange, 202, progress(upload));
    case "PUT":
      requireDigest(route.query.get("digest"));
      checkRange(exchange, upload);
      await uploads.append(upload, bodyOf(exchange));
      return finish(exchange, upload);
    default:
      throw unsupported(exchange);
  }
}

async function finish(exchange: Exchange, upload: Upload): Promise<void> {
  const { route, uploads, repository } = exchange;
  const digest = requireDigest(route.query.get("digest"));
  const bytes = upload.size();
  await uploads.finish(upload, digest);
  exchange.log({ event: "push", kind: "blob", repository: repository.name, digest, bytes });
  answer(exchange, 201, created(repository.name, digest));
}

/** True when the blob could be taken over; otherwise the caller starts an ordinary upload. */
async function mount(exchange: Exchange): Promise<boolean> {
  const { route, repository, store, may } = exchange;
  const digest = requireDigest(route.query.get("mount"));
  const from = route.query.get("from") ?? "";
  if (!isRepositoryName(from) || !(await may(from, "pull"))) return false;
  const bytes = await store.repository(from).blobSize(digest);
  if (bytes === null) return false;
  await repository.mountBlob(digest);
  exchange.log({ event: "mount", repository: repository.name, from, digest, bytes });
  answer(exchange, 201, created(repository.name, digest));
  return true;
}

/** A part must begin where the last one ended; without the header it is taken to. */
function checkRange({ request }: Exchange, upload: Upload): void {
  const header = request.headers["content-range"];
  if (header === undefined) return;
  const [, first, last] = contentRangeForm.exec(header) ?? [];
  if (first === undefined || Number(first) !== upload.size()) {
    throw refuse(
      416,
      "BLOB_UPLOAD_INVALID",
      `Expected a part that begins at byte ${upload.size()}. Go on from there.`,
      progress(upload),
    );
  }
  const length = request.headers["content-length"];
  if (length !== undefined && Number(last) - Number(first) + 1 !== Number(length)) {
    throw refuse(400, "SIZE_INVALID", "Expected Content-Range and Content-Length to agree.");
  }
}

// Leaving the loop early must not destroy the request: the refusal goes out on the same socket.
function bodyOf({ request }: Exchange): AsyncIterable<Uint8Array> {
  return request.iterator({ destroyOnReturn: false });
}

function progress(upload: Upload): { readonly [name: string]: string } {
  return {
    location: `/v2/${upload.repository}/blobs/uploads/${upload.id}`,
    range: `0-${Math.max(0, upload.size() - 1)}`,
    "docker-upload-uuid": upload.id,
  };
}

function created(repository: string, digest: string): Headers {
  return { location: `/v2/${repository}/blobs/${digest}`, "docker-content-digest": digest };
}
