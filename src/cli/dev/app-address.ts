/** Where the deployed app answers, and whether it really does. */
import { setTimeout as delay } from "node:timers/promises";
import { describeError } from "../../model/fault.ts";
import type { ComponentView, InstallView } from "../../protocol/api.ts";

export interface AppAddress {
  readonly component: string;
  readonly url: string;
}

const processType = "process";
const frontName = "web";

/** The app's front door: the `url` of the process called `web`, or else of every process that has one. */
export function findAddresses(install: InstallView): AppAddress[] {
  const all = install.components.filter(({ state }) => state === "active").flatMap(addressOf);
  const front = all.filter(({ component }) => component === frontName);
  return front.length > 0 ? front : all;
}

function addressOf(component: ComponentView): AppAddress[] {
  const output = component.outputs.url;
  if (component.type !== processType || !output || output.sensitive) return [];
  if (typeof output.value !== "string" || !/^https?:\/\//.test(output.value)) return [];
  return [{ component: component.name, url: output.value }];
}

export interface AppAnswer extends AppAddress {
  readonly ok: boolean;
  readonly path: string;
  /** What it said, or why it did not. */
  readonly said: string;
}

const triesMax = 40;
const pauseMs = 250;
const requestTimeoutMs = 5000;
const answerBytesMax = 1024 * 1024;

/** Asks the app until it answers well, or often enough: first its status, and where it has none, its page. */
export async function askApp(address: AppAddress, signal: AbortSignal): Promise<AppAnswer> {
  let answer = await askOnce(address, signal);
  for (let tries = 1; !answer.ok && tries < triesMax; tries++) {
    await delay(pauseMs, undefined, { signal });
    answer = await askOnce(address, signal);
  }
  return answer;
}

async function askOnce(address: AppAddress, signal: AbortSignal): Promise<AppAnswer> {
  const status = await request(address, "/api/status", signal);
  if (status.json?.ok === true) return { ...address, ok: true, path: "/api/status", said: "ok" };
  // A status that says it is not well is an answer; a page that hides it is not a better one.
  if (status.json && "ok" in status.json) {
    return {
      ...address,
      ok: false,
      path: "/api/status",
      said: JSON.stringify(status.json).slice(0, 500),
    };
  }
  const page = await request(address, "/", signal);
  return { ...address, ok: page.ok, path: "/", said: page.said };
}

async function request(
  address: AppAddress,
  path: string,
  signal: AbortSignal,
): Promise<{ ok: boolean; said: string; json: Record<string, unknown> | null }> {
  try {
    const timeout = AbortSignal.timeout(requestTimeoutMs);
    const response = await fetch(new URL(path, address.url), {
      signal: AbortSignal.any([signal, timeout]),
      redirect: "follow",
    });
    const json = parseObject(await readBounded(response));
    return { ok: response.ok, said: `HTTP ${response.status}`, json: response.ok ? json : null };
  } catch (error) {
    signal.throwIfAborted();
    const cause = error instanceof Error && error.cause ? error.cause : error;
    return { ok: false, said: describeError(cause), json: null };
  }
}

async function readBounded(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.byteLength;
    if (size > answerBytesMax) break;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value)
      ? { ...value }
      : null;
  } catch {
    return null;
  }
}
