/**
 * What the registry answers when it does not do what was asked: status, the standard's error code,
 * and JSON of the standard's form. The one place where errors become HTTP.
 */
import { describeError, isFault } from "../model/fault.ts";
import type { Json } from "../model/json.ts";
import { findContentFault } from "./content-fault.ts";

export type RegistryErrorCode =
  | "BLOB_UNKNOWN"
  | "BLOB_UPLOAD_INVALID"
  | "BLOB_UPLOAD_UNKNOWN"
  | "DIGEST_INVALID"
  | "MANIFEST_BLOB_UNKNOWN"
  | "MANIFEST_INVALID"
  | "MANIFEST_UNKNOWN"
  | "NAME_INVALID"
  | "NAME_UNKNOWN"
  | "SIZE_INVALID"
  | "UNAUTHORIZED"
  | "DENIED"
  | "UNSUPPORTED"
  | "TOOMANYREQUESTS"
  | "UNAVAILABLE"
  | "UNKNOWN";

export interface RegistryError {
  readonly code: RegistryErrorCode;
  readonly message: string;
  readonly detail?: Json;
}

/** Thrown anywhere in the registry to answer with this status. */
export class RegistryRefusal extends Error {
  override readonly name = "RegistryRefusal";
  readonly status: number;
  readonly errors: readonly RegistryError[];
  readonly headers: { readonly [name: string]: string };

  constructor(
    status: number,
    errors: readonly RegistryError[],
    headers: { readonly [name: string]: string } = {},
  ) {
    super(errors[0]?.message ?? "refused");
    this.status = status;
    this.errors = errors;
    this.headers = headers;
  }
}

/** A refusal with one error. */
export function refuse(
  status: number,
  code: RegistryErrorCode,
  message: string,
  headers: { readonly [name: string]: string } = {},
): RegistryRefusal {
  return new RegistryRefusal(status, [{ code, message }], headers);
}

/** Anything that was thrown, as a refusal; what is not known becomes a 500 that tells no details. */
export function toRefusal(error: unknown): RegistryRefusal {
  if (error instanceof RegistryRefusal) return error;
  const code = error instanceof Error && "code" in error ? error.code : null;
  if (code === "ENOSPC" || code === "EDQUOT") {
    return refuse(
      507,
      "UNAVAILABLE",
      "Expected room on the registry's disk, but it is full. Free some, then push again.",
    );
  }
  if (findContentFault(error)) return refuse(400, "MANIFEST_INVALID", describeError(error));
  if (isFault(error, "too_large")) return refuse(413, "SIZE_INVALID", error.message);
  if (isFault(error, "invalid")) return refuse(400, "NAME_INVALID", error.message);
  return refuse(500, "UNKNOWN", "The registry failed on its side. Its log says why.");
}
