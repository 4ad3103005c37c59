/**
 * Enrolment: the agent trades a one-time code for its identity and pins the server's root key. An agent
 * that has been replaced does so again with a new code, and keeps all else.
 *
 * Invariant: the key is on disk before the server hears of it, and the identity before it is used, so
 * a crash at any point can be repeated with the same code and the same key.
 */
import { createPublicKey, generateKeyPairSync, type KeyObject } from "node:crypto";
import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { replaceFile } from "../files/replace-file.ts";
import { Fault, isFault } from "../model/fault.ts";
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
import {
  type Identity,
  identityPath,
  readIdentity,
  verifyKeyset,
  writeIdentity,
} from "./identity.ts";
import type { Logger } from "./log.ts";
import { postJson } from "./post-json.ts";
import type { Route } from "./route.ts";
import { supersessionPath } from "./supersession.ts";

const fileBytesMax = 64 * 1024;
const retryCapMs = 15_000;

const EnrolmentFile = z.object({ code: z.string().regex(/^lfe_[\w-]+\.[0-9a-f]{16}$/) });

export interface EnrolOptions {
  readonly serverUrl: string;
  readonly route: Route;
  readonly directory: string;
  readonly enrolmentFile: string | undefined;
  readonly logger: Logger;
  readonly random: () => number;
  readonly sleep: (ms: number) => Promise<void>;
  readonly signal: AbortSignal;
}

/**
 * The identity on disk, or a first one for the code in the file. Waits for a server that is away; throws
 * a `Fault` with `unauthorized` when the code is wrong, used or expired.
 */
export async function enrol(options: EnrolOptions): Promise<Identity> {
  const known = await readIdentity(options.directory);
  return known ?? (await trade(options, await readCode(options.enrolmentFile), null));
}

/** True while there is a file that may hold a code. */
export function hasCode({ enrolmentFile }: Pick<EnrolOptions, "enrolmentFile">): boolean {
  return enrolmentFile !== undefined && existsSync(enrolmentFile);
}

/**
 * A new identity in place of the known one, with a key of its own, for a code that a person has put into
 * the file since; null when there is none, or when the server does not take it. Nothing else of the
 * agent's folder changes, so its jobs go on under the new identity.
 */
export async function enrolAnew(options: EnrolOptions, known: Identity): Promise<Identity | null> {
  const pem = await readText(keyPath(options.directory), fileBytesMax);
  if (pem === known.privateKey || !hasCode(options)) {
    // An enrolment that came to its end but for these files, or nothing at all.
    if (pem !== null) await forgetCode(options);
    return null;
  }
  try {
    return await trade(options, await readCode(options.enrolmentFile), known);
  } catch (error) {
    if (!isFault(error)) throw error;
    const { agentId } = known;
    options.logger.error("no new identity for the code; the agent stays who it is", {
      agentId,
      reason: error.message,
    });
    return null;
  }
}

async function trade(
  options: EnrolOptions,
  code: string,
  known: Identity | null,
): Promise<Identity> {
  const privateKey = await keepKey(options.directory);
  for (let attempt = 0; ; attempt++) {
    options.signal.throwIfAborted();
    try {
      const answer = await requestIdentity(options, code, privateKey);
      const identity = await checkAnswer(answer, code, privateKey, known);
      await writeIdentity(options.directory, identity);
      options.logger.info("enrolled", { agentId: identity.agentId, role: answer.role });
      await forgetCode(options);
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

/** The code first: with the key still there, a crash in between is seen for what it is. */
async function forgetCode({ directory, enrolmentFile }: EnrolOptions): Promise<void> {
  if (enrolmentFile !== undefined) await rm(enrolmentFile, { force: true });
  await rm(keyPath(directory), { force: true });
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
  { serverUrl, route, signal }: EnrolOptions,
  code: string,
  privateKey: KeyObject,
): Promise<EnrolmentAnswer> {
  const { status, body } = await postJson(route, new URL(enrolmentPath, serverUrl), {
    authorization: `Enrolment ${code}`,
    body: { publicKey: encodePublicKey(createPublicKey(privateKey)) },
    signal,
  });
  if (status === 429 || status >= 500) {
    throw new Fault("unavailable", `Expected an answer to the enrolment, got status ${status}.`);
  }
  if (status >= 300) {
    const reason = ApiError.safeParse(body).data?.error.message ?? `status ${status}.`;
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

/** The code's second part is the root key's id: only the server that made the code has that key. */
async function checkAnswer(
  answer: EnrolmentAnswer,
  code: string,
  privateKey: KeyObject,
  known: Identity | null,
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
  const seen = known?.rootPublicKey === rootPublicKey ? known.keysetNumber : 1;
  const keyset = await verifyKeyset(answer.keyset, { rootPublicKey, keysetNumber: seen });
  return {
    version: 1,
    agentId,
    privateKey: encodePrivateKey(privateKey),
    rootPublicKey,
    keysetNumber: keyset.number,
  };
}

/** The files that only the agent itself replaces. */
export function ownFiles(directory: string): string[] {
  return [identityPath(directory), keyPath(directory), supersessionPath(directory)];
}

function keyPath(directory: string): string {
  return join(directory, "enrolment-key.pem");
}
