/**
 * The server's API as functions: every answer is checked against the schema that the server itself
 * uses, so that inside the CLI types are trusted.
 */
import { z } from "zod";
import type { JobState } from "../model/job.ts";
import type { Digest } from "../model/json.ts";
import {
  AgentView,
  AppView,
  BuildView,
  CodeAnswer,
  EventView,
  InstallView,
  JobView,
  LiveView,
  ReleaseView,
  SyncAnswer,
  type SyncRequest,
  WhyAnswer,
} from "../protocol/api.ts";
import { JobEvent } from "../protocol/events.ts";
import { anySignal, askApi, awayWhenBroken, type Profile, sendRequest } from "./api-request.ts";
import { readLines, readServerSentEvents } from "./line-stream.ts";

export interface JobQuery {
  readonly install?: string | undefined;
  readonly state?: JobState | undefined;
  readonly after?: string | undefined;
  readonly limit?: number | undefined;
}

export interface ApiClient {
  readonly url: string;
  uploadSource(digest: Digest, content: Uint8Array): Promise<void>;
  sync(request: SyncRequest): Promise<SyncAnswer>;
  apps(): Promise<AppView[]>;
  builds(app?: string): Promise<BuildView[]>;
  releases(app?: string): Promise<ReleaseView[]>;
  installs(): Promise<InstallView[]>;
  install(name: string): Promise<InstallView>;
  createInstall(request: {
    app: string;
    name: string;
    inputs: Record<string, string>;
  }): Promise<InstallView>;
  deleteInstall(name: string): Promise<InstallView>;
  deploy(name: string, release?: number): Promise<InstallView>;
  pauseInstall(name: string, reason: string): Promise<InstallView>;
  /** Says that a person has looked at a conflict. */
  dismissConflict(name: string, key: string): Promise<InstallView>;
  resumeInstall(name: string): Promise<InstallView>;
  /** Null: as many jobs at once as its agent has slots. */
  limitInstall(name: string, jobsMax: number | null): Promise<InstallView>;
  /** Revokes the install's agent; the code is for the next one. */
  replaceAgent(install: string): Promise<z.output<typeof CodeAnswer>>;
  whyInstall(
    name: string,
    topic: { component?: string | undefined; deploy?: number | "current" | undefined },
  ): Promise<WhyAnswer>;
  whyJob(id: string): Promise<WhyAnswer>;
  jobs(query: JobQuery): Promise<{ jobs: JobView[]; next: string | null }>;
  job(id: string): Promise<JobView>;
  cancelJob(id: string): Promise<JobView>;
  agents(): Promise<AgentView[]>;
  agent(id: string): Promise<AgentView>;
  drainAgent(id: string, reason?: string): Promise<AgentView>;
  undrainAgent(id: string): Promise<AgentView>;
  /** A one-time code for the agent of an install, or for a build agent. */
  createCode(install: string | null): Promise<z.output<typeof CodeAnswer>>;
  events(query: { install?: string; job?: string; limit?: number }): Promise<EventView[]>;
  /** A job's events after a number, and with `follow` those to come until its outcome. */
  logs(
    id: string,
    options?: { after?: number; follow?: boolean; signal?: AbortSignal },
  ): AsyncGenerator<JobEvent>;
  /** What people watch, whenever it changed; ends when the connection does. */
  live(signal?: AbortSignal): AsyncGenerator<LiveView>;
}

const uploadTimeoutMs = 300_000;
/** The server sends something at least this often, if only a comment. */
const streamIdleMs = 90_000;

/** A client of one server in the name of one token. */
export function createApiClient(profile: Profile): ApiClient {
  const get = <Schema extends z.ZodType>(
    schema: Schema,
    path: string,
    query: Record<string, string | number | undefined> = {},
  ) => askApi(profile, schema, { path, query });
  const post = <Schema extends z.ZodType>(schema: Schema, path: string, json: unknown = {}) =>
    askApi(profile, schema, { method: "POST", path, json });
  return {
    url: profile.url,
    ...streamsOf(profile),
    ...holdsOf(profile),
    async uploadSource(digest, bytes) {
      const path = `/api/sources/${digest}`;
      const timeoutMs = uploadTimeoutMs;
      await askApi(profile, z.unknown(), { method: "POST", path, bytes, timeoutMs });
    },
    sync: (request) => post(SyncAnswer, "/api/apps/sync", request),
    apps: async () => (await get(z.object({ apps: z.array(AppView) }), "/api/apps")).apps,
    builds: async (app) =>
      (await get(z.object({ builds: z.array(BuildView) }), "/api/builds", { app })).builds,
    releases: async (app) =>
      (await get(z.object({ releases: z.array(ReleaseView) }), "/api/releases", { app })).releases,
    installs: async () =>
      (await get(z.object({ installs: z.array(InstallView) }), "/api/installs")).installs,
    install: (name) => get(InstallView, installPath(name)),
    createInstall: (request) => post(InstallView, "/api/installs", request),
    deleteInstall: (name) =>
      askApi(profile, InstallView, { method: "DELETE", path: installPath(name) }),
    deploy: (name, release) =>
      post(InstallView, `${installPath(name)}/deploy`, release === undefined ? {} : { release }),
    jobs: (query) => get(JobPage, "/api/jobs", { ...query }),
    job: (id) => get(JobView, jobPath(id)),
    cancelJob: (id) => post(JobView, `${jobPath(id)}/cancel`),
    createCode: (install) =>
      post(
        CodeAnswer,
        "/api/agents/code",
        install === null ? { role: "build" } : { role: "install", install },
      ),
    agents: async () => (await get(z.object({ agents: z.array(AgentView) }), "/api/agents")).agents,
    events: async (query) =>
      (await get(z.object({ events: z.array(EventView) }), "/api/events", { ...query })).events,
  };
}

type Holds =
  | "pauseInstall"
  | "resumeInstall"
  | "limitInstall"
  | "dismissConflict"
  | "replaceAgent"
  | "whyInstall"
  | "whyJob"
  | "agent"
  | "drainAgent"
  | "undrainAgent";

function holdsOf(profile: Profile): Pick<ApiClient, Holds> {
  const post = <Schema extends z.ZodType>(schema: Schema, path: string, json: object = {}) =>
    askApi(profile, schema, { method: "POST", path, json });
  return {
    pauseInstall: (name, reason) => post(InstallView, `${installPath(name)}/pause`, { reason }),
    resumeInstall: (name) => post(InstallView, `${installPath(name)}/resume`),
    limitInstall: (name, jobsMax) => post(InstallView, `${installPath(name)}/limits`, { jobsMax }),
    dismissConflict: (name, key) =>
      post(InstallView, `${installPath(name)}/conflicts/dismiss`, { key }),
    replaceAgent: (name) => post(CodeAnswer, `${installPath(name)}/replace-agent`),
    whyInstall: (name, { component, deploy }) =>
      askApi(profile, WhyAnswer, {
        path: `${installPath(name)}/why`,
        query: { component, deploy },
      }),
    whyJob: (id) => askApi(profile, WhyAnswer, { path: `${jobPath(id)}/why` }),
    agent: (id) => askApi(profile, AgentView, { path: agentPath(id) }),
    drainAgent: (id, reason) =>
      post(AgentView, `${agentPath(id)}/drain`, reason === undefined ? {} : { reason }),
    undrainAgent: (id) => post(AgentView, `${agentPath(id)}/undrain`),
  };
}

const JobPage = z.object({
  jobs: z.array(JobView),
  next: z
    .string()
    .nullish()
    .transform((next) => next ?? null),
});

function streamsOf(profile: Profile): Pick<ApiClient, "logs" | "live"> {
  return {
    async *logs(id, { after = 0, follow = false, signal } = {}) {
      const path = `${jobPath(id)}/logs`;
      const accept = "application/x-ndjson";
      const query = { after, ...(follow && { follow: true }) };
      for await (const line of readLines(openStream(profile, { path, query, accept }, signal))) {
        if (line !== "") yield JobEvent.parse(JSON.parse(line));
      }
    },
    async *live(signal) {
      const request = { path: "/api/live", accept: "text/event-stream" };
      for await (const data of readServerSentEvents(openStream(profile, request, signal))) {
        yield LiveView.parse(JSON.parse(data));
      }
    },
  };
}

/** The body of an answer as it comes; a server that falls silent for too long counts as away. */
async function* openStream(
  profile: Profile,
  request: { path: string; accept: string; query?: Record<string, number | boolean> },
  signal: AbortSignal | undefined,
): AsyncGenerator<Uint8Array> {
  const silence = new AbortController();
  const overdue = () => silence.abort(new DOMException("The server fell silent.", "TimeoutError"));
  let timer = setTimeout(overdue, streamIdleMs);
  try {
    const response = await sendRequest(profile, {
      ...request,
      signal: anySignal(signal, silence.signal),
    });
    const reader = response.body?.getReader();
    if (!reader) return;
    for (;;) {
      const { done, value } = await awayWhenBroken(profile, () => reader.read());
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(overdue, streamIdleMs);
      yield value;
    }
  } finally {
    clearTimeout(timer);
    // Ends the connection when the reader stops early; after the end it does nothing.
    silence.abort(new DOMException("No longer read.", "AbortError"));
  }
}

function installPath(name: string): string {
  return `/api/installs/${encodeURIComponent(name)}`;
}

function agentPath(id: string): string {
  return `/api/agents/${encodeURIComponent(id)}`;
}

function jobPath(id: string): string {
  return `/api/jobs/${encodeURIComponent(id)}`;
}
