/** The registry's addresses: what a request is about, checked before anything else looks at it. */

import { isRepositoryName } from "./reference.ts";
import { refuse } from "./registry-refusal.ts";

export type RouteKind =
  | "base"
  | "blob"
  | "uploads"
  | "upload"
  | "imageManifest"
  | "tags"
  | "referrers";

export interface Route {
  readonly kind: RouteKind;
  /** The repository's name; empty for the base. */
  readonly repository: string;
  /** Digest, tag or upload id; empty where the address has none. Not checked yet. */
  readonly reference: string;
  readonly query: URLSearchParams;
}

export type Action = "pull" | "push" | "delete";

const uploadsForm = /^\/v2\/(.+)\/blobs\/uploads\/?$/;
const uploadForm = /^\/v2\/(.+)\/blobs\/uploads\/([^/]+)$/;
const contentForm = /^\/v2\/(.+)\/(blobs|manifests|referrers)\/([^/]+)$/;
const tagsForm = /^\/v2\/(.+)\/tags\/list$/;

const contentKinds: { readonly [segment: string]: RouteKind } = {
  blobs: "blob",
  manifests: "imageManifest",
  referrers: "referrers",
};

/** Parses a request's target; throws a refusal when it leads nowhere. */
export function parseRoute(target: string): Route {
  const mark = target.indexOf("?");
  const path = mark < 0 ? target : target.slice(0, mark);
  const query = new URLSearchParams(mark < 0 ? "" : target.slice(mark + 1));
  if (path === "/v2/" || path === "/v2") {
    return { kind: "base", repository: "", reference: "", query };
  }
  const [kind, repository, reference] = matchPath(path);
  if (!isRepositoryName(repository)) {
    throw refuse(400, "NAME_INVALID", "Expected a repository name such as `guestbook/web`.");
  }
  return { kind, repository, reference: decodePart(reference), query };
}

/** What a caller must be allowed to do for this method on this route. */
export function actionOf(kind: RouteKind, method: string): Action {
  if (kind === "upload" || kind === "uploads") return "push";
  if (method === "DELETE") return "delete";
  return method === "GET" || method === "HEAD" ? "pull" : "push";
}

function matchPath(path: string): [kind: RouteKind, repository: string, reference: string] {
  const uploads = uploadsForm.exec(path);
  if (uploads) return ["uploads", uploads[1] ?? "", ""];
  const upload = uploadForm.exec(path);
  if (upload) return ["upload", upload[1] ?? "", upload[2] ?? ""];
  const content = contentForm.exec(path);
  const kind = content && contentKinds[content[2] ?? ""];
  if (kind) return [kind, content[1] ?? "", content[3] ?? ""];
  const tags = tagsForm.exec(path);
  if (tags) return ["tags", tags[1] ?? "", ""];
  throw refuse(404, "UNSUPPORTED", "Expected an address of the OCI distribution API under /v2/.");
}

function decodePart(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw refuse(400, "NAME_INVALID", "Expected an address whose percent signs encode characters.");
  }
}
