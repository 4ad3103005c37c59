/**
 * One request to the server's API, and what becomes of it: an answer of the expected shape, or a
 * `Fault` that says which side failed and what to do.
 *
 * Invariant: the token travels in the `Authorization` header only; it is in no URL and no message.
 */
import type { z } from "zod";
import { Fault, type FaultCode } from "../model/fault.ts";
import { ApiError } from "../protocol/api.ts";

/** Where the server is, and the token that opens it. */
export interface Profile {
  readonly url: string;
  readonly token: string;
}

export interface ApiRequest {
  readonly method?: "GET" | "POST" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  readonly json?: unknown;
  readonly bytes?: Uint8Array;
  readonly accept?: string;
  readonly signal?: AbortSignal;
  readonly timeoutMs?: number;
}

const requestTimeoutMs = 30_000;
const answerBytesMax = 64 * 1024 * 1024;
const errorBytesMax = 1024 * 1024;

/** Sends a request and parses its answer. */
export async function askApi<Schema extends z.ZodType>(
  profile: Profile,
  schema: Schema,
  request: ApiRequest,
): Promise<z.output<Schema>> {
  const signal = anySignal(
    request.signal,
    AbortSignal.timeout(request.timeoutMs ?? requestTimeoutMs),
  );
  const response = await sendRequest(profile, { ...request, signal });
  const text = await awayWhenBroken(profile, () => readText(response, answerBytesMax));
  const parsed = schema.safeParse(parseJson(text));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new Fault(
    "unavailable",
    `Expected an answer of ${request.path} that this version of \`landfall\` understands, got another (${issue?.path.join(".") ?? ""}: ${issue?.message ?? "not JSON"}). Use the \`landfall\` of the server's version, and check that \`${profile.url}\` is a Landfall server.`,
  );
}

/** Sends a request; the response is a success, its body still to be read. */
export async function sendRequest(profile: Profile, request: ApiRequest): Promise<Response> {
  const response = await awayWhenBroken(profile, () =>
    fetch(requestUrl(profile, request), {
      method: request.method ?? "GET",
      headers: {
        authorization: `Bearer ${profile.token}`,
        accept: request.accept ?? "application/json",
        ...(request.json !== undefined && { "content-type": "application/json" }),
        ...(request.bytes !== undefined && { "content-type": "application/octet-stream" }),
      },
      ...(request.json !== undefined && { body: JSON.stringify(request.json) }),
      ...(request.bytes !== undefined && { body: Buffer.from(request.bytes) }),
      redirect: "error",
      ...(request.signal && { signal: request.signal }),
    }),
  );
  if (response.ok) return response;
  throw await refusalOf(profile, request, response);
}

/** The signal that fires when any of them does. */
export function anySignal(...signals: (AbortSignal | undefined)[]): AbortSignal {
  return AbortSignal.any(signals.filter((signal) => signal !== undefined));
}

/** Runs something that speaks to the server; a broken connection becomes a `Fault` that says so. */
export async function awayWhenBroken<Value>(
  profile: Profile,
  work: () => Promise<Value>,
): Promise<Value> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Fault) throw error;
    if (error instanceof Error && error.name === "AbortError") throw error;
    throw new Fault(
      "unavailable",
      `Expected the server at \`${profile.url}\` to answer, got ${reasonOf(error)}. Start it with \`landfall dev\` (or \`landfall server\`), or name another with \`--server URL\`.`,
      { cause: error },
    );
  }
}

function requestUrl(profile: Profile, request: ApiRequest): URL {
  const url = new URL(request.path, profile.url);
  for (const [name, value] of Object.entries(request.query ?? {})) {
    if (value !== undefined) url.searchParams.set(name, String(value));
  }
  return url;
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.name === "TimeoutError") return "no answer in time";
  const { cause } = error;
  if (cause instanceof Error && "code" in cause) return String(cause.code);
  return cause instanceof Error ? cause.message : error.message;
}

const codeOfStatus: Readonly<Record<number, FaultCode>> = {
  400: "invalid",
  401: "unauthorized",
  403: "forbidden",
  404: "not_found",
  409: "conflict",
  413: "too_large",
  422: "invalid",
};
const faultCodes: readonly string[] = [...new Set(Object.values(codeOfStatus)), "unavailable"];

async function refusalOf(
  profile: Profile,
  request: ApiRequest,
  response: Response,
): Promise<Fault> {
  const text = await readText(response, errorBytesMax).catch(() => "");
  const parsed = ApiError.safeParse(parseJson(text));
  if (!parsed.success) {
    return new Fault(
      codeOfStatus[response.status] ?? "unavailable",
      `Expected an answer of the Landfall server at \`${profile.url}\`, got HTTP ${response.status} for ${request.path}. Check the address (\`--server URL\`) and the server's log.`,
    );
  }
  const { code, message, problems } = parsed.data.error;
  const hint =
    response.status === 401
      ? " Give a valid token with `--token-file FILE`, or start `landfall dev` in this folder."
      : "";
  return new Fault(
    faultCodes.includes(code)
      ? (code as FaultCode)
      : (codeOfStatus[response.status] ?? "unavailable"),
    message + hint,
    { problems },
  );
}

async function readText(response: Response, bytesMax: number): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.byteLength;
    if (size > bytesMax) {
      throw new Fault("too_large", `Expected an answer of at most ${bytesMax} bytes, got more.`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
