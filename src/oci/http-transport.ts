/**
 * HTTP requests to one registry over kept-alive connections: bounded in time and size, tried again a
 * bounded number of times. Authorization is asked for at each request, since a job's token is
 * renewed while the job runs, and is sent to that registry's origin only.
 */
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout as delay } from "node:timers/promises";
import { describeError, Fault } from "../model/fault.ts";
import type { ContentStream } from "./content.ts";
import { collect } from "./content-stream.ts";

export type RegistryCredentials =
  | { readonly token: () => Promise<string> }
  | { readonly username: string; readonly password: string };

export interface TransportOptions {
  readonly url: string;
  /** Null for a registry that lets everybody in. */
  readonly credentials: RegistryCredentials | null;
  readonly signal?: AbortSignal;
  readonly retriesMax?: number;
  /** How long a connection may be silent. */
  readonly idleMs?: number;
}

export interface TransportRequest {
  readonly method: string;
  /** A path on the registry, or an absolute URL of the same origin. */
  readonly path: string;
  readonly headers?: { readonly [name: string]: string | number };
  readonly body?: ContentStream;
}

export interface Transport {
  readonly origin: string;
  /** Sends once; throws `ConnectionFailure` when no answer came. */
  send(request: TransportRequest): Promise<IncomingMessage>;
  /** Runs something again while it fails for reasons that pass. */
  retry<T>(what: string, operation: () => Promise<T>): Promise<T>;
  close(): void;
}

/** The connection failed, or the registry asked to come back later: worth trying again. */
export class ConnectionFailure extends Error {
  override readonly name = "ConnectionFailure";
}

/** About half a minute in all: a server that is started again is back by then. */
const retriesMaxDefault = 12;
const idleMsDefault = 60_000;
const retryMs = 100;
const retryMsMax = 5000;
const socketsMax = 16;
const passingStatuses: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** Connections to the registry at this URL. */
export function createTransport(options: TransportOptions): Transport {
  const base = parseBase(options.url);
  const isSecure = base.protocol === "https:";
  const agent = new (isSecure ? HttpsAgent : Agent)({ keepAlive: true, maxSockets: socketsMax });
  const retriesMax = options.retriesMax ?? retriesMaxDefault;

  async function send(request: TransportRequest): Promise<IncomingMessage> {
    const target = new URL(request.path, base);
    if (target.origin !== base.origin) {
      throw new Fault(
        "invalid",
        `Expected ${base.origin} to stay in charge of the request, but it points to ${target.origin}. Ask the registry's owner to turn redirects off.`,
      );
    }
    const authorization = await authorizationOf(options.credentials);
    const response = await connect(isSecure ? httpsRequest : httpRequest, target, {
      agent,
      method: request.method,
      headers: { ...request.headers, ...(authorization ? { authorization } : {}) },
      body: request.body,
      idleMs: options.idleMs ?? idleMsDefault,
      signal: options.signal,
    });
    if (!passingStatuses.has(response.statusCode ?? 0)) return response;
    response.resume();
    throw new ConnectionFailure(`it answered ${response.statusCode}`);
  }

  async function retry<T>(what: string, operation: () => Promise<T>): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await operation();
      } catch (error) {
        if (!(error instanceof ConnectionFailure)) throw error;
        options.signal?.throwIfAborted();
        if (attempt >= retriesMax) throw unreachable(base.origin, what, attempt + 1, error.message);
        const pauseMs = Math.min(retryMs * 2 ** attempt, retryMsMax);
        await delay(pauseMs, undefined, options.signal ? { signal: options.signal } : {});
      }
    }
  }

  return { origin: base.origin, send, retry, close: () => agent.destroy() };
}

/** What is left of an answer, as bytes, refused beyond `sizeMax`. */
export async function readAnswer(response: IncomingMessage, sizeMax: number): Promise<Buffer> {
  try {
    return await collect(response, sizeMax);
  } catch (error) {
    if (error instanceof Fault) throw error;
    throw new ConnectionFailure(describeError(error), { cause: error });
  }
}

interface ConnectOptions {
  readonly agent: Agent;
  readonly method: string;
  readonly headers: { readonly [name: string]: string | number };
  readonly body: ContentStream | undefined;
  readonly idleMs: number;
  readonly signal: AbortSignal | undefined;
}

function connect(
  start: typeof httpRequest,
  target: URL,
  { body, idleMs, signal, ...options }: ConnectOptions,
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    let contentError: unknown = null;
    const fail = (error: unknown) => {
      if (contentError !== null) return reject(contentError);
      if (signal?.aborted) return reject(signal.reason);
      reject(new ConnectionFailure(describeError(error), { cause: error }));
    };
    const request = start(target, { ...options, ...(signal ? { signal } : {}) });
    let answer: IncomingMessage | null = null;
    request.setTimeout(idleMs, () => {
      (answer ?? request).destroy(new Error(`it was silent for ${idleMs} ms`));
    });
    request.on("response", (response) => {
      answer = response;
      resolve(response);
    });
    request.on("error", fail);
    if (!body) return void request.end();
    const noted = noteError(body, (error) => {
      contentError = error;
    });
    pipeline(Readable.from(noted, { objectMode: false }), request).catch(fail);
  });
}

// Tells a failure to read what is being sent, which is not the registry's, from a broken connection.
async function* noteError(stream: ContentStream, note: (error: unknown) => void) {
  try {
    yield* stream;
  } catch (error) {
    note(error);
    throw error;
  }
}

async function authorizationOf(credentials: RegistryCredentials | null): Promise<string | null> {
  if (credentials === null) return null;
  if ("token" in credentials) return `Bearer ${await credentials.token()}`;
  const text = `${credentials.username}:${credentials.password}`;
  return `Basic ${Buffer.from(text).toString("base64")}`;
}

function parseBase(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isWeb = url?.protocol === "http:" || url?.protocol === "https:";
  if (!url || !isWeb || url.username !== "" || url.password !== "") {
    throw new Fault(
      "invalid",
      "Expected the registry's address as http(s)://host:port, without a username or password in it.",
    );
  }
  return url;
}

/** The refusal after the last try. */
export function unreachable(origin: string, what: string, tries: number, reason: string): Fault {
  return new Fault(
    "unavailable",
    `Expected the registry at ${origin} to ${what}, but it failed ${tries} times: ${reason}. Check that it runs and can be reached, then try again.`,
  );
}
