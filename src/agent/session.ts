/**
 * One connection's trust, without I/O: the answer to the challenge, and which of the server's signed
 * frames may have an effect.
 *
 *   challenge ──hello──> greeted ──signed(welcome)──> welcomed ──signed(offer, cancel, credentials, ack)──┐
 *                                                        ^─────────────────────────────────────────────────┘
 *
 * Invariant: a frame has an effect only when the server signed it for this agent and this connection
 * and its counter is exactly one more than the last.
 */
import { sign } from "node:crypto";
import type { z } from "zod";
import { describeError, isFault } from "../model/fault.ts";
import type { Keyset } from "../protocol/documents.ts";
import {
  type Challenge,
  EffectFrame,
  type Hello,
  helloText,
  protocolVersions,
  type Refused,
} from "../protocol/frames.ts";
import { type FindKey, verifyDocument } from "../protocol/signed-document.ts";
import { type Identity, keyFinder, privateKeyOf, verifyKeyset } from "./identity.ts";

export type RefusalCode = z.output<typeof Refused>["code"];

/** A signed frame that was not taken, and why. */
export interface FrameRefusal {
  readonly code: RefusalCode;
  readonly reason: string;
  /** Frames are missing in between: only a new connection can go on. */
  readonly gap: boolean;
}

/** What an agent says of itself in its hello. */
export type HelloReport = Omit<Hello, "type" | "protocol" | "agentId" | "agentNonce" | "signature">;

export interface Session {
  /** The newest version that both sides speak. */
  readonly protocol: number;
  readonly agentId: string;
  readonly agentNonce: string;
  readonly keyset: Keyset;
  readonly findKey: FindKey;
  counter: number;
}

/** Verifies the challenge's keyset and signs its nonce; throws a `Fault` when the server cannot be trusted. */
export async function answerChallenge(
  identity: Identity,
  challenge: Challenge,
  agentNonce: string,
  report: HelloReport,
): Promise<{ hello: Hello; session: Session } | { refusal: string }> {
  const protocol = protocolVersions.filter((known) => challenge.protocols.includes(known)).at(-1);
  if (protocol === undefined) {
    return {
      refusal: `Expected a server that speaks protocol ${protocolVersions.join(" or ")}, got one that speaks ${challenge.protocols.join(", ")}. Upgrade the agent.`,
    };
  }
  const keyset = await verifyKeyset(challenge.keyset, identity);
  const { agentId } = identity;
  const parts = { rootKeyId: keyset.rootKeyId, nonce: challenge.nonce, agentNonce, agentId };
  const signature = sign(null, Buffer.from(helloText(parts)), privateKeyOf(identity));
  return {
    hello: {
      type: "hello",
      protocol,
      agentId,
      agentNonce,
      signature: signature.toString("base64url"),
      ...reportIn(protocol, report),
    },
    session: { protocol, agentId, agentNonce, keyset, findKey: keyFinder(keyset), counter: 0 },
  };
}

/** A server of protocol 1 knows no more than this. */
function reportIn(protocol: number, report: HelloReport): HelloReport {
  if (protocol >= 2) return report;
  return { journal: report.journal, freeSlots: report.freeSlots };
}

/** The effect frame in a signed document, once everything about it holds; the counter moves only then. */
export async function openFrame(
  session: Session,
  document: string,
): Promise<{ frame: EffectFrame } | { refusal: FrameRefusal }> {
  let frame: EffectFrame;
  try {
    frame = (await verifyDocument("landfall-frame", EffectFrame, document, session.findKey))
      .payload;
  } catch (error) {
    const code = isFault(error, "forbidden") ? "bad_signature" : "invalid";
    return refuse(code, describeError(error));
  }
  if (frame.agentId !== session.agentId) {
    return refuse(
      "not_mine",
      `Expected a frame for ${session.agentId}, got one for ${frame.agentId}.`,
    );
  }
  if (frame.agentNonce !== session.agentNonce) {
    return refuse("replayed", "Expected a frame of this connection, got one of another.");
  }
  const expected = session.counter + 1;
  if (frame.counter !== expected) {
    const reason = `Expected frame ${expected} of this connection, got ${frame.counter}.`;
    return refuse("replayed", reason, frame.counter > expected);
  }
  if ((frame.type === "welcome") !== (expected === 1)) {
    return refuse("invalid", `Expected the welcome first and once, got ${frame.type}.`);
  }
  session.counter = expected;
  return { frame };
}

function refuse(code: RefusalCode, reason: string, gap = false): { refusal: FrameRefusal } {
  return { refusal: { code, reason, gap } };
}
