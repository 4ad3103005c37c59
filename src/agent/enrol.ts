/**
 * Enrolment: the agent trades a one-time code for its identity and pins the server's root key.
 *
 * Invariant: the key is on disk before the server hears of it, and the identity before it is used, so
 * a crash at any point can be repeated with the same code and the same key.
 */
import { createPublicKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { replaceFile } from "../files/replace-file.ts";
import { describeError, Fault, isFault } from "../model/fault.ts";
import { ApiError } from "../protocol/api.ts";
import { EnrolmentAnswer, enrolmentPath } from "../protocol/enrolment.ts";
import {
  decodePrivateKey,
  decodePublicKey,
  encodePrivateKey,
  encodePublicKey,
  keyIdOf,
} from "../protocol/signed-document.ts";
import { fullJitterMs } from "./backoff.ts";
import { readText } from "./foreign-file.ts";
import { type Identity, readIdentity, verifyKeyset, writeIdentity } from "./identity.ts";
import type { Logger } from "./log.ts";

const fileBytesMax = 64 * 1024;
const answerBytesMax = 256 * 1024;
const requestTimeoutMs = 10_000;
const retryCapMs = 15_000;

const EnrolmentFile = z.object({ code: z.string().regex(/^lfe_[\w-]+\.[0-9a-f]{16}$/) });

export interface EnrolOptions {
  readonly serverUrl: string;
  readonly directory: string;
  readonly enrolmentFile: string | undefined;
  readonly logger: Logger;
  readonly random: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  readonly signal: AbortSignal;
}

/**
 * The identity on disk, or a new one for the code in the file. Waits for a server that is away; throws
 * a `Fault` with `unauthorized` when the code is wrong, used or expired.
 */
export async function enrol(options: EnrolOptions): Promise<Identity> {
  const known = await readIdentity(options.directory);
  const identity = known ?? (await trade(options, await readCode(options.enrolmentFile)));
  const keyFile = keyPath(options.directory);
  await rm(keyFile, { force: true });
  if (options.enrolmentFile !== undefined) await rm(options.enrolmentFile, { force: true });
  return identity;
}

async function trade(options: EnrolOptions, code: string): Promise<Identity> {
  const privateKey = await keepKey(options.directory);
  for (let attempt = 0; ; attempt++) {
    options.signal.throwIfAborted();
    try {
      const answer = await requestIdentity(options, code, privateKey);
      const identity = await checkAnswer(answer, code, privateKey);
      await writeIdentity(options.directory, identity);
      options.logger.info("enrolled", { agentId: identity.agentId, role: answer.role });
      return identity;
    } catch (error) {
      if (!isFault(error, "unavailable")) throw error;
      options.logger.warn("the server cannot be reached for enrolment; trying again", {
        reason: error.message,
      });
      await options.sleep(fullJitterMs(attempt, retryCapMs, options.random));
    }
  }
}

async function readCode(file: string | undefined): Promise<string> {
  const text = file === undefined ? null : await readText(file, fileBytesMax);
  if (text === null) {
    throw new Fault(
      "unauthorized",
      `Expected an enrolment code in ${file ?? "`enrolmentFile`"}, since this agent has no identity yet, got none. Ask the server for a new code.`,
    );
  }
  try {
    return EnrolmentFile.parse(JSON.parse(text)).code;
  } catch {
    throw new Fault(
      "unauthorized",
      `Expected {"code": "lfe_…"} in ${file}, got something else. Ask the server for a new code.`,
    );
  }
}

/** The key of an earlier try, so that a used code still fits it; otherwise a new one. */
async function keepKey(directory: string): Promise<KeyObject> {
  const path = keyPath(directory);
  const pem = await readText(path, fileBytesMax);
  if (pem !== null) return decodePrivateKey(pem);
  const { privateKey } = generateKeyPairSync("ed25519");
  await replaceFile(path, encodePrivateKey(privateKey));
  return privateKey;
}

async function requestIdentity(
  { serverUrl, signal }: EnrolOptions,
  code: string,
  privateKey: KeyObject,
): Promise<EnrolmentAnswer> {
  const { status, body } = await post(new URL(enrolmentPath, serverUrl), {
    authorization: `Enrolment ${code}`,
    body: JSON.stringify({ publicKey: encodePublicKey(createPublicKey(privateKey)) }),
    signal,
  });
  if (status === 429 || status >= 500) {
    throw new Fault("unavailable", `Expected an answer to the enrolment, got status ${status}.`);
  }
  if (status >= 300) {
    const reason = ApiError.safeParse(body).data?.error.message ?? `status ${status}`;
    throw new Fault(
      "unauthorized",
      `Expected the server to take the enrolment code, but it refused: ${reason} Ask for a new code, put it into the enrolment file and start the agent again.`,
    );
  }
  const answer = EnrolmentAnswer.safeParse(body);
  if (!answer.success) {
    throw new Fault("invalid", "Expected an enrolment answer of a known form, got another one.");
  }
  return answer.data;
}

async function post(
  url: URL,
  { authorization, body, signal }: { authorization: string; body: string; signal: AbortSignal },
): Promise<{ status: number; body: unknown }> {
  try {
    const response = await fetch(url, {
      method: "POST",
      headers: { authorization, "content-type": "application/json" },
      body,
      redirect: "error",
      signal: AbortSignal.any([signal, AbortSignal.timeout(requestTimeoutMs)]),
    });
    return { status: response.status, body: await readJson(response) };
  } catch (error) {
    signal.throwIfAborted();
    const cause = error instanceof Error && error.cause ? error.cause : error;
    throw new Fault("unavailable", `Expected to reach ${url.origin}: ${describeError(cause)}.`, {
      cause: error,
    });
  }
}

async function readJson(response: Response): Promise<unknown> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > answerBytesMax) throw new Error("an answer that is too large");
  }
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The code's second part is the root key's id: only the server that made the code has that key. */
async function checkAnswer(
  answer: EnrolmentAnswer,
  code: string,
  privateKey: KeyObject,
): Promise<Identity> {
  const expected = code.slice(code.lastIndexOf(".") + 1);
  const rootKeyId = keyIdOf(decodePublicKey(answer.rootPublicKey));
  if (rootKeyId !== expected) {
    throw new Fault(
      "forbidden",
      `Expected the server whose root key is ${expected}, got one with ${rootKeyId}. Check \`serverUrl\`: the code was made by another server, or something stands between.`,
    );
  }
  const { rootPublicKey, agentId } = answer;
  const keyset = await verifyKeyset(answer.keyset, { rootPublicKey, keysetNumber: 1 });
  return {
    version: 1,
    agentId,
    privateKey: encodePrivateKey(privateKey),
    rootPublicKey,
    keysetNumber: keyset.number,
  };
}

function keyPath(directory: string): string {
  return join(directory, "enrolment-key.pem");
}
