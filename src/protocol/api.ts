/**
 * The server's HTTP API: what people and programs with a token may ask, and what they are answered.
 *
 *   POST   /api/sources/:digest           a gzipped tar, its digest checked           → {}
 *   POST   /api/apps/sync                 SyncRequest                                 → SyncAnswer
 *   GET    /api/apps                                                                  → { apps: AppView[] }
 *   GET    /api/builds?app=                                                           → { builds: BuildView[] }
 *   GET    /api/releases?app=                                                         → { releases: ReleaseView[] }
 *   GET    /api/installs                                                              → { installs: InstallView[] }
 *   POST   /api/installs                  CreateInstall                               → InstallView
 *   GET    /api/installs/:name                                                        → InstallView
 *   DELETE /api/installs/:name                                                        → InstallView
 *   POST   /api/installs/:name/deploy     DeployRequest                               → InstallView
 *   POST   /api/installs/:name/pause      PauseRequest                                → InstallView
 *   POST   /api/installs/:name/resume                                                 → InstallView
 *   POST   /api/installs/:name/replace-agent                                          → CodeAnswer
 *   POST   /api/installs/:name/limits     LimitsRequest                               → InstallView
 *   POST   /api/installs/:name/conflicts/dismiss   DismissRequest                     → InstallView
 *   GET    /api/installs/:name/why?component=&deploy=                                 → WhyAnswer
 *   GET    /api/jobs?install=&state=&after=&limit=                                    → { jobs: JobView[], next }
 *   GET    /api/jobs/:id                                                              → JobView
 *   GET    /api/jobs/:id/logs?after=&follow=   lines of JobEvent, as they come (application/x-ndjson)
 *   POST   /api/jobs/:id/cancel                                                       → JobView
 *   GET    /api/jobs/:id/why                                                          → WhyAnswer
 *   GET    /api/agents                                                                → { agents: AgentView[] }
 *   POST   /api/agents/code               CodeRequest                                 → CodeAnswer
 *   GET    /api/agents/:id                                                            → AgentView
 *   POST   /api/agents/:id/drain          DrainRequest                                → AgentView
 *   POST   /api/agents/:id/undrain                                                    → AgentView
 *   GET    /api/events?install=&job=&after=&limit=                                    → { events: EventView[], next }
 *   GET    /api/live                      server-sent events: { installs, jobs, agents } whenever something changed
 *   GET    /healthz /readyz /metrics /openapi.json /docs /sign-in /
 *
 * The token travels in `Authorization: Bearer …`; in the browser it is pasted once and becomes a cookie.
 * An error is `{ error: { code, message, problems } }` with the status of its code.
 */
import { z } from "zod";
import { componentStates } from "../model/component-states.ts";
import { jobStates, operations } from "../model/job.ts";
import { subjectKinds, waitKinds } from "../model/why.ts";
import { OutcomeSchema, OutputSchema } from "./events.ts";
import { DigestText, JsonRecord } from "./json-schema.ts";

const PositionSchema = z.object({ file: z.string(), line: z.int(), column: z.int() });

export const ProblemSchema = z.object({
  severity: z.enum(["error", "warning"]),
  message: z.string(),
  position: PositionSchema.nullable(),
});

export const ApiError = z.object({
  error: z.object({ code: z.string(), message: z.string(), problems: z.array(ProblemSchema) }),
});

export const AppConfigSchema = z.object({
  name: z.string().regex(/^[a-z0-9][a-z0-9_-]{0,62}$/),
  displayName: z.string(),
  description: z.string(),
  sandbox: z.object({ type: z.string(), config: JsonRecord }),
  inputs: z.array(
    z.object({
      name: z.string(),
      displayName: z.string(),
      description: z.string(),
      group: z.string(),
      default: z.string().nullable(),
      required: z.boolean(),
      sensitive: z.boolean(),
    }),
  ),
  components: z
    .array(
      z.object({
        name: z.string().regex(/^[a-z0-9][a-z0-9_]{0,62}$/),
        type: z.string(),
        dependencies: z.array(z.string()),
        source: z.object({ path: z.string() }).nullable(),
        config: JsonRecord,
        outputs: z.record(z.string(), z.object({ sensitive: z.boolean() })),
        needs: z.array(z.string()),
        position: PositionSchema,
      }),
    )
    .max(1000),
});

export const SyncRequest = z.object({
  config: AppConfigSchema,
  /** The uploaded source of every component that has one. */
  sources: z.record(z.string(), z.object({ digest: DigestText, sizeBytes: z.int().min(0) })),
});
export type SyncRequest = z.output<typeof SyncRequest>;

export const BuildView = z.object({
  id: z.string(),
  app: z.string(),
  component: z.string(),
  state: z.enum(["running", "succeeded", "failed"]),
  jobId: z.string(),
  artifact: z.object({ repository: z.string(), digest: z.string(), sizeBytes: z.int() }).nullable(),
  createdAt: z.string(),
});
export type BuildView = z.output<typeof BuildView>;

export const SyncAnswer = z.object({
  app: z.string(),
  configNumber: z.int(),
  /** False when the newest configuration is this one already. */
  changed: z.boolean(),
  builds: z.array(BuildView),
  /** The release of this configuration, once all its builds are there. */
  releaseNumber: z.int().nullable(),
});
export type SyncAnswer = z.output<typeof SyncAnswer>;

export const AppView = z.object({
  id: z.string(),
  name: z.string(),
  displayName: z.string(),
  configNumber: z.int().nullable(),
  releaseNumber: z.int().nullable(),
});
export type AppView = z.output<typeof AppView>;

export const ReleaseView = z.object({
  id: z.string(),
  app: z.string(),
  number: z.int(),
  configNumber: z.int(),
  components: z.record(z.string(), z.object({ digest: z.string() })),
  createdAt: z.string(),
});
export type ReleaseView = z.output<typeof ReleaseView>;

export const CreateInstall = z.object({
  app: z.string(),
  name: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/),
  inputs: z.record(z.string(), z.string()).default({}),
});

export const DeployRequest = z.object({ release: z.int().min(1).exactOptional() });

export const PauseRequest = z.object({ reason: z.string().trim().min(1).max(500) });
/** How many of an install's jobs may be under way at once; null: as many as its agent has slots. */
export const DismissRequest = z.object({ key: z.string().min(1).max(1024) });
export const LimitsRequest = z.object({ jobsMax: z.int().min(1).max(1000).nullable() });
export const DrainRequest = z.object({ reason: z.string().trim().max(500).exactOptional() });

export const ComponentView = z.object({
  name: z.string(),
  type: z.string(),
  state: z.enum(componentStates),
  reason: z.string().nullable(),
  dependencies: z.array(z.string()),
  /** The job that is under way, or the last one. */
  jobId: z.string().nullable(),
  artifactDigest: z.string().nullable(),
  outputs: z.record(z.string(), OutputSchema),
  progress: z.object({ done: z.number(), total: z.number().nullable() }).nullable(),
});
export type ComponentView = z.output<typeof ComponentView>;

export const InstallView = z.object({
  id: z.string(),
  name: z.string(),
  app: z.string(),
  state: z.enum(["provisioning", "active", "deleting", "deleted"]),
  /** True when every component is active (or disabled) at the desired release and no job is under way. */
  settled: z.boolean(),
  /** What went wrong with the sandbox, if anything. */
  reason: z.string().nullable(),
  sandboxType: z.string(),
  releaseNumber: z.int().nullable(),
  deploy: z.int(),
  agent: z
    .object({
      id: z.string(),
      connected: z.boolean(),
      seenAt: z.string().nullable(),
      /** The reason for which it drains; null when it takes jobs. */
      draining: z.string().nullable(),
      /** Jobs that it holds now. */
      jobs: z.int(),
      version: z.string().nullable(),
    })
    .nullable(),
  /** No job is made or begun while it is set; jobs under way go on. */
  pause: z.object({ reason: z.string(), by: z.string(), since: z.string() }).nullable(),
  /** The server was restored; the install's agent must tell first what it did since. */
  restoredAt: z.string().nullable(),
  /** How many of its jobs may be under way at once; null: as many as its agent has slots. */
  jobsMax: z.int().nullable(),
  /** What older tries of jobs wanted to write into the install's store, kept aside there until a person has looked. */
  conflicts: z.array(
    z.object({
      component: z.string(),
      key: z.string(),
      jobId: z.string().nullable(),
      since: z.string(),
    }),
  ),
  components: z.array(ComponentView),
  createdAt: z.string(),
});
export type InstallView = z.output<typeof InstallView>;

export const JobView = z.object({
  id: z.string(),
  operation: z.enum(operations),
  state: z.enum(jobStates),
  app: z.string(),
  install: z.string().nullable(),
  component: z.string().nullable(),
  epoch: z.string(),
  agentId: z.string().nullable(),
  manifestDigest: z.string(),
  createdAt: z.string(),
  startedAt: z.string().nullable(),
  finishedAt: z.string().nullable(),
  /** When a person asked it to stop. */
  cancelRequestedAt: z.string().nullable(),
  outcome: OutcomeSchema.nullable(),
});
export type JobView = z.output<typeof JobView>;

export const AgentView = z.object({
  id: z.string(),
  role: z.enum(["build", "install"]),
  install: z.string().nullable(),
  connected: z.boolean(),
  seenAt: z.string().nullable(),
  generation: z.int(),
  revoked: z.boolean(),
  /** It finishes what it runs, and gets nothing new. */
  drain: z.object({ reason: z.string(), since: z.string() }).nullable(),
  /** Jobs that it holds now. */
  jobs: z.int(),
  /** Of its program; null when it has not told. */
  version: z.string().nullable(),
});
export type AgentView = z.output<typeof AgentView>;

/** Why something is where it is; see `model/why.ts`. */
export const WhyAnswer = z.object({
  subject: z.object({ kind: z.enum(subjectKinds), id: z.string() }),
  wait: z.enum(waitKinds).nullable(),
  state: z.string(),
  summary: z.string(),
  /** What it waits for, and what that waits for, down to the root. */
  get because(): z.ZodArray<typeof WhyAnswer> {
    return z.array(WhyAnswer);
  },
  unblock: z.array(z.string()),
  since: z.string().nullable(),
  firstCause: z
    .object({
      jobId: z.string(),
      code: z.string(),
      message: z.string().nullable(),
      at: z.string(),
    })
    .nullable(),
});
export type WhyAnswer = z.output<typeof WhyAnswer>;

export const CodeRequest = z.object({
  role: z.enum(["build", "install"]),
  install: z.string().exactOptional(),
});
export const CodeAnswer = z.object({ code: z.string(), expiresAt: z.string() });

export const EventView = z.object({
  id: z.string(),
  kind: z.string(),
  actor: z.string(),
  install: z.string().nullable(),
  jobId: z.string().nullable(),
  component: z.string().nullable(),
  data: z.record(z.string(), z.unknown()),
  at: z.string(),
});
export type EventView = z.output<typeof EventView>;

export const LiveView = z.object({
  installs: z.array(InstallView),
  /** Unfinished jobs, and the newest finished ones. */
  jobs: z.array(JobView),
  agents: z.array(AgentView),
  builds: z.array(BuildView),
});
export type LiveView = z.output<typeof LiveView>;
