/**
 * The signed documents: keyset, manifest, lease grant.
 *
 * A manifest says what is to be done and never changes; a grant says who may do it now. An executor
 * starts only with both, and with a grant that names the manifest's digest.
 */
import { z } from "zod";
import { operations, outcomeCodes } from "../model/job.ts";
import {
  AgentIdText,
  AppIdText,
  DigestText,
  EpochSchema,
  InstallIdText,
  JobIdText,
  JsonRecord,
} from "./json-schema.ts";

/** The server's keys, numbered and signed by the root key that agents pinned when they enrolled. */
export const Keyset = z.object({
  version: z.literal(1),
  number: z.int().min(1),
  rootKeyId: z.string(),
  /** Keys that may sign manifests, grants and frames: key id → raw public key, base64url. */
  keys: z.record(z.string(), z.string()),
  serverUrl: z.string(),
});
export type Keyset = z.output<typeof Keyset>;

export const Manifest = z.object({
  version: z.literal(1),
  jobId: JobIdText,
  operation: z.enum(operations),
  createdAt: z.string(),
  app: z.object({ id: AppIdText, name: z.string() }),
  /** Null for a build, which belongs to no install. */
  install: z.object({ id: InstallIdText, name: z.string() }).nullable(),
  /** The plugin that does it: a component's type, or `sandbox/<type>`. Its digest comes with plugins as artifacts. */
  plugin: z.string(),
  /** Null for the sandbox's own operations. Templates in `config` are not rendered yet. */
  component: z.object({ name: z.string(), type: z.string(), config: JsonRecord }).nullable(),
  sandbox: z.object({ type: z.string(), config: JsonRecord }).nullable(),
  /** build: the uploaded source, a gzipped tar, by digest; null for a component without source. */
  source: z.object({ digest: DigestText, sizeBytes: z.int().min(0) }).nullable(),
  /** sync, plan, apply, destroy: the artifact. build: the repository to push to. */
  artifact: z
    .object({
      repository: z.string(),
      digest: DigestText.nullable(),
      sizeBytes: z.int().min(0),
    })
    .nullable(),
  /** The install's inputs that are not sensitive. */
  inputs: z.record(z.string(), z.string()),
  /** Components whose outputs the templates may name, each with the keyed hash that its outputs must have. */
  dependencies: z.record(z.string(), z.object({ outputsHash: z.string() })),
  /** apply: what was approved. */
  approval: z.object({ planDigest: DigestText, approvalDigest: DigestText }).nullable(),
  /** What this deploy makes of the component, in one digest: artifact, configuration, inputs, dependencies. */
  fingerprint: DigestText.nullable(),
  /** The limit to finish; agents of protocol 1 know no other. */
  timeoutSeconds: z.int().min(1),
  /** Since protocol 2. */
  limits: z
    .object({
      startSeconds: z.int().min(1).nullable(),
      finishSeconds: z.int().min(1),
      silenceSeconds: z.int().min(1),
    })
    .exactOptional(),
  /** Since protocol 2. */
  retry: z
    .object({
      attempts: z.int().min(1).max(21),
      on: z.array(z.enum(outcomeCodes)),
      backoffSeconds: z.number().min(0),
      backoffSecondsMax: z.number().min(0),
    })
    .exactOptional(),
});
export type Manifest = z.output<typeof Manifest>;

export const LeaseGrant = z.object({
  version: z.literal(1),
  jobId: JobIdText,
  manifestDigest: DigestText,
  agentId: AgentIdText,
  epoch: EpochSchema,
  serverTime: z.string(),
  leaseSeconds: z.int().min(1),
});
export type LeaseGrant = z.output<typeof LeaseGrant>;
