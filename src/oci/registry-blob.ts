/** The registry's answers about blobs: reading them whole or in part, and removing them. */
import { pipeline } from "node:stream/promises";
import type { Digest } from "../model/json.ts";
import { answer, type Exchange, requireDigest, unsupported } from "./registry-exchange.ts";
import { refuse } from "./registry-refusal.ts";

const rangeForm = /^bytes=(\d{0,15})-(\d{0,15})$/;

/** HEAD, GET and DELETE of `/v2/<name>/blobs/<digest>`. */
export async function serveBlob(exchange: Exchange): Promise<void> {
  const { method, repository, route } = exchange;
  const digest = requireDigest(route.reference);
  if (method === "DELETE") {
    if (!(await repository.removeBlob(digest))) throw unknownBlob();
    exchange.log({ event: "delete", repository: repository.name, digest });
    return answer(exchange, 202);
  }
  if (method !== "GET" && method !== "HEAD") throw unsupported(exchange);
  const size = await repository.blobSize(digest);
  if (size === null) throw unknownBlob();
  const headers = {
    "docker-content-digest": digest,
    "content-type": "application/octet-stream",
    "accept-ranges": "bytes",
    etag: `"${digest}"`,
  };
  const part = parseRange(exchange.request.headers.range, size);
  if (part === "unsatisfiable") {
    throw refuse(416, "SIZE_INVALID", `Expected a range within ${size} bytes.`, {
      "content-range": `bytes */${size}`,
    });
  }
  if (part === null) return sendBlob(exchange, digest, 200, { "content-length": size, ...headers });
  await sendBlob(
    exchange,
    digest,
    206,
    {
      "content-length": part.end - part.start + 1,
      "content-range": `bytes ${part.start}-${part.end}/${size}`,
      ...headers,
    },
    part,
  );
}

async function sendBlob(
  { response, repository, method }: Exchange,
  digest: Digest,
  status: number,
  headers: { readonly [name: string]: string | number },
  part?: { start: number; end: number },
): Promise<void> {
  const stream = method === "HEAD" ? null : await repository.readBlob(digest, part);
  if (method !== "HEAD" && !stream) throw unknownBlob();
  response.writeHead(status, headers);
  if (!stream) {
    response.end();
    return;
  }
  // A broken connection is the reader's to notice; pipeline closes file and socket.
  await pipeline(stream, response).catch(() => response.destroy());
}

/** The part that a Range header asks for; null when it asks for the whole or is not understood. */
function parseRange(
  header: string | undefined,
  size: number,
): { start: number; end: number } | "unsatisfiable" | null {
  const match = header === undefined ? null : rangeForm.exec(header);
  const [first = "", last = ""] = match?.slice(1) ?? [];
  if (!match || (first === "" && last === "")) return null;
  if (first === "") {
    const start = Math.max(0, size - Number(last));
    return start < size ? { start, end: size - 1 } : "unsatisfiable";
  }
  const start = Number(first);
  const end = last === "" ? size - 1 : Math.min(Number(last), size - 1);
  if (last !== "" && Number(last) < start) return null;
  return start < size ? { start, end } : "unsatisfiable";
}

function unknownBlob() {
  return refuse(404, "BLOB_UNKNOWN", "The repository does not have this blob.");
}
