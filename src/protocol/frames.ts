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
 *   server → agent   signed(recall)                   since 2: the server's memory went back in time; tell what ended
 *   agent → server   recalled                         since 2: manifests and outcomes of jobs that ended, in pages
 *
 * A signed frame carries the nonce that the agent chose for this connection and a counter that rises by
 * one, so that neither a proxy nor a replay can forge one.
 */
import { z } from "zod";
import { OutcomeSchema } from "./events.ts";
import { JobCredentials } from "./job-folder.ts";
import { EventsOfJob, JobKey } from "./job-key.ts";
import { AgentIdText, EpochSchema } from "./json-schema.ts";

export const protocolVersions = [1, 2] as const;

/** The largest frame either side takes. */
export const frameBytesMax = 1024 * 1024;

/**
 * A place in the server's history that an agent remembers: the number of an audit event and a
 * hash of it, sealed by the server. A server that does not find it has been restored from an older back-up.
 */
export const Checkpoint = z.object({ position: z.int().min(0), mark: z.string().max(256) });
export type Checkpoint = z.output<typeof Checkpoint>;

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
  /** Since 2: the newest checkpoint that a server gave this agent; null before the first. */
  checkpoint: Checkpoint.nullable().exactOptional(),
  /** Since 2: the newest generation of any job that it launched, 0 before the first. */
  generation: z.int().min(0).exactOptional(),
  /** Since 2: how many jobs it runs at once. */
  slots: z.int().min(1).exactOptional(),
  /** Since 2: which hello this is of the agent's folder, so that one that is heard late is known as such. */
  count: z.object({ folder: z.string().max(64), number: z.int().min(1) }).exactOptional(),
  /** Since 2: the version of its program, for people. */
  version: z.string().max(64).exactOptional(),
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
  /** Since 2: how many bytes of event frames may be on their way without an ack, over all jobs. */
  creditBytes: z.int().min(1).exactOptional(),
  /** Since 2. */
  checkpoint: Checkpoint.exactOptional(),
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
  /** Since 2, with an outcome: where in the server's history it stands. */
  checkpoint: Checkpoint.exactOptional(),
});
/** Since 2: the server was restored; it asks for all that ended or runs, as far back as the agent remembers. */
export const Recall = z.object({ ...counted, type: z.literal("recall") });
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
  Recall,
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
/**
 * Since 2: one page of the answer to `recall`, oldest first, those that still run (without an outcome)
 * last; an empty last page has `more` false too.
 */
export const Recalled = z.object({
  type: z.literal("recalled"),
  jobs: z
    .array(
      z.object({ manifest: z.string(), epoch: EpochSchema, outcome: OutcomeSchema.nullable() }),
    )
    .max(200),
  more: z.boolean(),
});

export const AgentFrame = z.discriminatedUnion("type", [
  Hello,
  Accepted,
  Refused,
  Lost,
  Renew,
  Events,
  Recalled,
]);
export type AgentFrame = z.output<typeof AgentFrame>;
