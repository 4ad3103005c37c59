/**
 * Terraform's `http` backend for one job: on loopback, with a password of its own, over the install's
 * store. State never touches a file, and a write of an older try is refused by the store's fence.
 *
 * The lock is held in memory: the backend lives as long as its job, one job acts on a component at a
 * time, and what an older one left behind is fenced out, so no lock can be left over.
 */
import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { describeError, isFault } from "../model/fault.ts";
import { type Fence, type Store, storeKeys, valueBytesMax } from "../store/store.ts";

const username = "job";
const lockBytesMax = 64 * 1024;
const statePath = "/state";

export interface StateBackend {
  readonly address: string;
  readonly username: string;
  readonly password: string;
  close(): Promise<void>;
}

export interface StateBackendOptions {
  readonly store: Store;
  readonly fence: Fence;
  /** plan looks and changes nothing. */
  readonly isReadOnly: boolean;
  readonly random: (size: number) => Uint8Array;
}

interface Answer {
  readonly status: number;
  readonly body?: string | Uint8Array;
}

/** Starts the backend on a free port of loopback. */
export async function startStateBackend(options: StateBackendOptions): Promise<StateBackend> {
  const password = Buffer.from(options.random(24)).toString("base64url");
  const expected = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
  const handle = createHandler(options);
  const server = createServer((request, response) => {
    void answer(request, response, expected, handle);
  });
  const port = await new Promise<number>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      resolve(typeof address === "object" && address ? address.port : 0);
    });
  });
  return {
    address: `http://127.0.0.1:${port}${statePath}`,
    username,
    password,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

type Handle = (method: string, query: URLSearchParams, body: Uint8Array) => Promise<Answer>;

function createHandler({ store, fence, isReadOnly }: StateBackendOptions): Handle {
  const key = storeKeys.backendState(fence.component);
  let lock: { id: string; body: Uint8Array } | null = null;
  /** The version that the job has seen last; undefined until it has looked. */
  let version: number | null | undefined;

  async function read(): Promise<Answer> {
    const found = await store.read(key);
    version = found?.version ?? null;
    return found ? { status: 200, body: found.value } : { status: 404 };
  }

  async function change(lockId: string | null, body: Uint8Array | null): Promise<Answer> {
    if (isReadOnly) return { status: 403, body: "Expected no change of state by a plan." };
    if (lock && lock.id !== lockId) return { status: 423, body: lock.body };
    if (version === undefined) await read();
    const options = { expectedVersion: version ?? null, fence };
    if (body) version = await store.write(key, body, options);
    else {
      await store.remove(key, options);
      version = null;
    }
    return { status: 200 };
  }

  return async (method, query, body) => {
    if (method === "GET") return read();
    if (method === "POST") return change(query.get("ID"), body);
    if (method === "DELETE") return change(query.get("ID"), null);
    if (method === "LOCK") {
      if (lock) return { status: 423, body: lock.body };
      lock = { id: lockIdOf(body), body };
      return { status: 200 };
    }
    if (method === "UNLOCK") {
      // A forced unlock sends no id.
      if (lock && body.byteLength > 0 && lockIdOf(body) !== lock.id)
        return { status: 423, body: lock.body };
      lock = null;
      return { status: 200 };
    }
    return { status: 405 };
  };
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  expected: string,
  handle: Handle,
): Promise<void> {
  const { status, body } = await decide(request, expected, handle).catch(
    (error: unknown): Answer => {
      if (isFault(error, "conflict")) return { status: 409, body: error.message };
      if (isFault(error, "too_large")) return { status: 413, body: error.message };
      return { status: 500, body: describeError(error) };
    },
  );
  response.writeHead(status, status === 413 ? { connection: "close" } : {});
  response.end(body);
}

async function decide(request: IncomingMessage, expected: string, handle: Handle): Promise<Answer> {
  const url = new URL(request.url ?? "/", "http://127.0.0.1");
  if (!isSame(request.headers.authorization ?? "", expected)) return { status: 401 };
  if (url.pathname !== statePath) return { status: 404 };
  const method = request.method ?? "";
  const body = await readBody(request, method === "POST" ? valueBytesMax : lockBytesMax);
  return body ? handle(method, url.searchParams, body) : { status: 413, body: "Too large." };
}

async function readBody(request: IncomingMessage, bytesMax: number): Promise<Uint8Array | null> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    const bytes = Buffer.from(chunk);
    size += bytes.byteLength;
    if (size > bytesMax) return null;
    chunks.push(bytes);
  }
  return Buffer.concat(chunks);
}

function lockIdOf(body: Uint8Array): string {
  try {
    const lock: unknown = JSON.parse(new TextDecoder().decode(body));
    if (lock && typeof lock === "object" && "ID" in lock) return String(lock.ID);
  } catch {
    // Not Terraform's form: the bytes themselves are the id.
  }
  return createHash("sha256").update(body).digest("hex");
}

function isSame(given: string, expected: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(given), digest(expected));
}
