/**
 * The agent's connection: one WebSocket, text frames of JSON, checked against these schemas on both sides.
 *
 *   server → agent   challenge                        nonce, server's time, keyset signed by the root key
 *   agent → server   hello                            signature over the nonce; what it has running or unreported
 *   server → agent   signed(welcome)                  generation, lease, what to keep and what to forget
 *   server → agent   signed(offer|cancel|credentials) every frame with an effect is signed and counted
 *   server → agent   signed(ack)                      everything up to this number is safe, and may be forgotten
 *   server → agent   signed(superseded)               a newer connection has this identity: launch nothing more
 *   agent → server   accepted | refused | lost        the answer to an offer, and what became of it
 *   agent → server   events                           numbered lines and the outcome of one job
 *   both             renew / renewed                  all leases in one message, every few seconds: the heartbeat
 *
 * A signed frame carries the nonce that the agent chose for this connection and a counter that rises by
 * one, so that neither a proxy nor a replay can forge one.
 */
import { z } from "zod";
import { JobCredentials } from "./job-folder.ts";
import { EventsOfJob, JobKey } from "./job-key.ts";
import { AgentIdText } from "./json-schema.ts";

export const protocolVersions = [1] as const;

/** The largest frame either side takes. */
export const frameBytesMax = 1024 * 1024;

export const Challenge = z.object({
  type: z.literal("challenge"),
  protocols: z.array(z.int()),
  nonce: z.string(),
  serverTime: z.string(),
  keyset: z.string(),
});
export type Challenge = z.output<typeof Challenge>;

/** A job that the agent still knows of when it connects. `ended`: the outcome is in its folder. */
export const JournalEntry = JobKey.extend({ state: z.enum(["running", "ended"]) });
export type JournalEntry = z.output<typeof JournalEntry>;

export const Hello = z.object({
  type: z.literal("hello"),
  protocol: z.int(),
  agentId: AgentIdText,
  agentNonce: z.string(),
  /** Ed25519 over `helloText(...)`, base64url. */
  signature: z.string(),
  journal: z.array(JournalEntry),
  freeSlots: z.int().min(0),
});
export type Hello = z.output<typeof Hello>;

/** What the agent signs to prove that it holds its key, bound to this server and this connection. */
export function helloText(parts: {
  rootKeyId: string;
  nonce: string;
  agentNonce: string;
  agentId: string;
}): string {
  return ["landfall-hello", parts.rootKeyId, parts.nonce, parts.agentNonce, parts.agentId].join(
    "\n",
  );
}

/** The envelope of every frame of the server that has an effect; `document` is a `landfall-frame`. */
export const SignedFrame = z.object({ type: z.literal("signed"), document: z.string() });

const counted = { counter: z.int().min(1), agentNonce: z.string(), agentId: AgentIdText };

export const Welcome = z.object({
  ...counted,
  type: z.literal("welcome"),
  serverTime: z.string(),
  generation: z.int().min(1),
  leaseSeconds: z.int().min(1),
  /** Of the journal: still wanted, report events after `acknowledged`. */
  keep: z.array(JobKey.extend({ acknowledged: z.int().min(0) })),
  /** Of the journal: the server has its outcome or a newer epoch; end the executor, forget the folder. */
  forget: z.array(JobKey),
});
export const Offer = z.object({
  ...counted,
  type: z.literal("offer"),
  manifest: z.string(),
  grant: z.string(),
  credentials: JobCredentials,
});
export const Cancel = z.object({
  ...counted,
  ...JobKey.shape,
  type: z.literal("cancel"),
  graceSeconds: z.int().min(0),
});
export const RenewedCredentials = z.object({
  ...counted,
  ...JobKey.shape,
  type: z.literal("credentials"),
  credentials: JobCredentials,
});
/** An agent forgets what is acknowledged, so a forged one would lose an outcome. */
export const Ack = z.object({
  ...counted,
  ...JobKey.shape,
  type: z.literal("ack"),
  acknowledged: z.int().min(0),
});
export const Superseded = z.object({
  ...counted,
  type: z.literal("superseded"),
  reason: z.string(),
});
export const EffectFrame = z.discriminatedUnion("type", [
  Welcome,
  Offer,
  Cancel,
  RenewedCredentials,
  Ack,
  Superseded,
]);
export type EffectFrame = z.output<typeof EffectFrame>;

export const Renewed = z.object({ type: z.literal("renewed"), serverTime: z.string() });
/** The server closes after this, with a reason for people; it says no more than a cut connection does. */
export const Goodbye = z.object({
  type: z.literal("goodbye"),
  code: z.enum(["retry", "refused"]),
  reason: z.string(),
});

export const ServerFrame = z.discriminatedUnion("type", [Challenge, SignedFrame, Renewed, Goodbye]);
export type ServerFrame = z.output<typeof ServerFrame>;

export const Accepted = z.object({ type: z.literal("accepted"), ...JobKey.shape });
/** The agent refused a document or an offer; audited. `jobKey` is null where none could be trusted. */
export const Refused = z.object({
  type: z.literal("refused"),
  job: JobKey.nullable(),
  code: z.enum([
    "bad_signature",
    "replayed",
    "not_mine",
    "older_epoch_alive",
    "no_slot",
    "invalid",
  ]),
  reason: z.string(),
});
/** No trace of the executor and no outcome: it died. */
export const Lost = z.object({ type: z.literal("lost"), ...JobKey.shape, reason: z.string() });
export const Renew = z.object({
  type: z.literal("renew"),
  jobs: z.array(JobKey),
  freeSlots: z.int().min(0),
});
export const Events = EventsOfJob.extend({ type: z.literal("events") });

export const AgentFrame = z.discriminatedUnion("type", [
  Hello,
  Accepted,
  Refused,
  Lost,
  Renew,
  Events,
]);
export type AgentFrame = z.output<typeof AgentFrame>;
