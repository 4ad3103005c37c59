/**
 * The OCI registry: the distribution API over a content store in a folder, on node:http.
 *
 * Every request takes the same way: parse the address, authorize, handle, and answer with the
 * standard's JSON when something is refused. Nothing is served, not even a 404, before
 * `authorize` has let the caller in. It runs in a process of its own: hashing blocks the loop.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { describeError } from "../model/fault.ts";
import { type Authorize, type Caller, isRefusal } from "./authorize.ts";
import { type FolderStore, openFolderStore, temporaryLifetimeMs } from "./folder-store.ts";
import { sendRefusal } from "./refusal-answer.ts";
import { serveBlob } from "./registry-blob.ts";
import { answerJson, type Exchange, type RegistryRecord } from "./registry-exchange.ts";
import { serveImageManifest, serveReferrers, serveTags } from "./registry-manifest.ts";
import { RegistryRefusal, refuse, toRefusal } from "./registry-refusal.ts";
import { type Action, actionOf, parseRoute, type Route, type RouteKind } from "./registry-route.ts";
import { serveUpload, startUpload } from "./registry-upload.ts";
import { createUploadSessions, type UploadLimits, type UploadSessions } from "./upload-session.ts";

export interface RegistryOptions {
  readonly directory: string;
  readonly authorize: Authorize;
  /** Gets one record per push, mount, removal, refusal and failure. */
  readonly log: (record: RegistryRecord) => void;
  readonly now: () => Date;
  readonly random: (size: number) => Uint8Array;
  readonly limits?: Partial<UploadLimits>;
}

export interface Registry {
  readonly server: Server;
  /** Takes no more connections, lets running requests end, cuts them after `graceMs`. */
  close(graceMs: number): Promise<void>;
}

const defaultLimits: UploadLimits = {
  uploadsMax: 256,
  blobBytesMax: 32 * 1024 ** 3,
  idleMs: temporaryLifetimeMs / 2,
};
const idleSocketMs = 60_000;
const headersMs = 10_000;
const connectionsMax = 1024;
const sweepMs = 60_000;

const handlers: { readonly [kind in RouteKind]: (exchange: Exchange) => Promise<void> } = {
  base: async (exchange) => answerJson(exchange, {}),
  blob: serveBlob,
  uploads: startUpload,
  upload: serveUpload,
  imageManifest: serveImageManifest,
  tags: serveTags,
  referrers: serveReferrers,
};

/** Opens the store and makes the server; the caller lets it listen. */
export async function createRegistry(options: RegistryOptions): Promise<Registry> {
  const { directory, now, random } = options;
  const store = await openFolderStore(directory, { now: now(), random });
  const uploads = createUploadSessions(store, { ...defaultLimits, ...options.limits }, options);
  const server = createServer({ headersTimeout: headersMs, requestTimeout: 0 });
  server.on("request", (request, response) => {
    void serve(options, store, uploads, request, response);
  });
  server.timeout = idleSocketMs;
  server.keepAliveTimeout = idleSocketMs;
  server.maxConnections = connectionsMax;
  const sweeping = setInterval(() => {
    void Promise.all([uploads.sweep(), store.sweep(now())]).catch((error: unknown) =>
      options.log({ event: "failure", message: describeError(error) }),
    );
  }, sweepMs);
  sweeping.unref();
  return {
    server,
    async close(graceMs) {
      clearInterval(sweeping);
      await closeServer(server, graceMs);
      await uploads.close();
    },
  };
}

async function serve(
  options: RegistryOptions,
  store: FolderStore,
  uploads: UploadSessions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  response.setHeader("docker-distribution-api-version", "registry/2.0");
  const method = request.method ?? "GET";
  try {
    const { route, caller } = await admit(options, request, method);
    const may = (repository: string, action: Action) =>
      judge(options, request, repository, action).then(
        () => true,
        (error: unknown) => {
          if (error instanceof RegistryRefusal) return false;
          throw error;
        },
      );
    const repository = store.repository(route.repository || "base");
    const { log } = options;
    await handlers[route.kind]({
      request,
      response,
      method,
      route,
      repository,
      store,
      uploads,
      log,
      caller: caller?.subject ?? null,
      may,
    });
  } catch (error) {
    const refusal = toRefusal(error);
    if (refusal.status >= 500 && !request.errored) {
      options.log({
        event: "failure",
        method,
        status: refusal.status,
        message: describeError(error),
      });
    }
    await sendRefusal(request, response, refusal);
  }
}

/** Parses and authorizes; a caller without credentials does not even learn that an address is wrong. */
async function admit(
  options: RegistryOptions,
  request: IncomingMessage,
  method: string,
): Promise<{ route: Route; caller: Caller | null }> {
  let route: Route | null = null;
  let wrongAddress: unknown = null;
  try {
    route = parseRoute(request.url ?? "/");
  } catch (error) {
    wrongAddress = error;
  }
  const action = route ? actionOf(route.kind, method) : "pull";
  const caller = await judge(options, request, route?.repository || null, action);
  if (!route) throw wrongAddress;
  return { route, caller };
}

/** Who the caller is, where that is known; throws the refusal when they may not do this. */
async function judge(
  { authorize, log }: RegistryOptions,
  request: IncomingMessage,
  repository: string | null,
  action: Action,
): Promise<Caller | null> {
  const { authorization } = request.headers;
  const verdict = await authorize({
    ...(authorization === undefined ? {} : { authorization }),
    repository,
    action,
  });
  if (!isRefusal(verdict)) return verdict;
  const { status, message, challenge } = verdict;
  log({ event: "refusal", status, repository, action, message });
  const code = status === 401 ? "UNAUTHORIZED" : status === 403 ? "DENIED" : "TOOMANYREQUESTS";
  throw refuse(status, code, message, challenge ? { "www-authenticate": challenge } : {});
}

function closeServer(server: Server, graceMs: number): Promise<void> {
  return new Promise((resolve) => {
    const cut = setTimeout(() => server.closeAllConnections(), graceMs);
    server.close(() => {
      clearTimeout(cut);
      resolve();
    });
    server.closeIdleConnections();
  });
}
