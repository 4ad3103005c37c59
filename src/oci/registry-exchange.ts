/** One request and its answer, as the registry's handlers see them. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { type Digest, isDigest, type Json } from "../model/json.ts";
import type { FolderRepository } from "./folder-repository.ts";
import type { FolderStore } from "./folder-store.ts";
import { refuse } from "./registry-refusal.ts";
import type { Action, Route } from "./registry-route.ts";
import type { UploadSessions } from "./upload-session.ts";

export type Headers = { readonly [name: string]: string | number };

/** One line of the registry's log: what happened, never a credential. */
export type RegistryRecord = { readonly event: string } & { readonly [field: string]: Json };

export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly method: string;
  readonly route: Route;
  readonly repository: FolderRepository;
  readonly store: FolderStore;
  readonly uploads: UploadSessions;
  readonly log: (record: RegistryRecord) => void;
  /** The try of a job whose token the caller holds; null for callers that are no job. */
  readonly caller: string | null;
  /** Asks whether the same caller may do something else, elsewhere. */
  readonly may: (repository: string, action: Action) => Promise<boolean>;
}

/** Answers without a body. */
export function answer({ response }: Exchange, status: number, headers: Headers = {}): void {
  response.writeHead(status, status === 204 ? headers : { "content-length": 0, ...headers });
  response.end();
}

/** Answers with bytes, or with their headers alone to a HEAD. */
export function answerBytes(
  { response, method }: Exchange,
  bytes: Uint8Array,
  headers: Headers,
): void {
  response.writeHead(200, { "content-length": bytes.length, ...headers });
  response.end(method === "HEAD" ? undefined : bytes);
}

/** Answers with JSON. */
export function answerJson(exchange: Exchange, value: object, headers: Headers = {}): void {
  const bytes = Buffer.from(JSON.stringify(value));
  answerBytes(exchange, bytes, { "content-type": "application/json", ...headers });
}

/** The text as a digest, or a refusal. */
export function requireDigest(text: string | null): Digest {
  if (text !== null && isDigest(text)) return text;
  throw refuse(400, "DIGEST_INVALID", "Expected a digest of the form sha256: and 64 hex digits.");
}

/** The refusal of a method that an address does not have. */
export function unsupported({ method }: Exchange) {
  return refuse(405, "UNSUPPORTED", `This address does not take ${method}.`);
}
