/**
 * The route table: every route of the server but the agents' WebSocket and the registry's `/v2/`.
 *
 * Invariant: a row without `caller: "token"` is one of the few that `routes.test.ts` names.
 */
import {
  CodeAnswer,
  CodeRequest,
  CreateInstall,
  DeployRequest,
  InstallView,
  JobView,
  LiveView,
  SyncAnswer,
  SyncRequest,
} from "../../protocol/api.ts";
import { EnrolmentAnswer, EnrolmentRequest, enrolmentPath } from "../../protocol/enrolment.ts";
import { JobEvent } from "../../protocol/events.ts";
import { listAgents, listApps, listBuilds, listInstalls, listReleases, viewJob } from "../views.ts";
import * as handlers from "./handlers.ts";
import { agentHolds, installHolds, jobReasons } from "./hold-routes.ts";
import * as pages from "./page-handlers.ts";
import { defineRoute, type Route } from "./route.ts";
import * as schemas from "./schemas.ts";

const descriptionBytesMax = 16 * 1024 * 1024;

const apps: readonly Route[] = [
  defineRoute({
    method: "POST",
    path: "/api/sources/:digest",
    caller: "token",
    group: "apps",
    summary: "Upload a component's source, a gzipped tar, by its digest",
    params: schemas.DigestPath,
    bodyKind: "stream",
    bodyBytesMax: handlers.sourceBytesMax,
    answer: schemas.Empty,
    handle: handlers.uploadSource,
  }),
  defineRoute({
    method: "GET",
    path: "/api/sources/:digest",
    caller: "job-token",
    group: "apps",
    summary: "Download a source, for the build job whose token names it",
    params: schemas.DigestPath,
    answerType: "application/gzip",
    handle: handlers.downloadSource,
  }),
  defineRoute({
    method: "POST",
    path: "/api/apps/sync",
    caller: "token",
    group: "apps",
    summary: "Describe an app: a changed description becomes a new configuration, and is built",
    body: SyncRequest,
    bodyBytesMax: descriptionBytesMax,
    answer: SyncAnswer,
    handle: handlers.syncDescribedApp,
  }),
  defineRoute({
    method: "GET",
    path: "/api/apps",
    caller: "token",
    group: "apps",
    summary: "List apps",
    answer: schemas.Apps,
    handle: async ({ services }) => ({ apps: await listApps(services.context.database) }),
  }),
  defineRoute({
    method: "GET",
    path: "/api/builds",
    caller: "token",
    group: "apps",
    summary: "List builds, newest first",
    query: schemas.AppQuery,
    answer: schemas.Builds,
    handle: async ({ services, query }) => ({
      builds: await listBuilds(services.context.database, query.app ?? null),
    }),
  }),
  defineRoute({
    method: "GET",
    path: "/api/releases",
    caller: "token",
    group: "apps",
    summary: "List releases, newest first",
    query: schemas.AppQuery,
    answer: schemas.Releases,
    handle: async ({ services, query }) => ({
      releases: await listReleases(services.context.database, query.app ?? null),
    }),
  }),
];

const installs: readonly Route[] = [
  defineRoute({
    method: "GET",
    path: "/api/installs",
    caller: "token",
    group: "installs",
    summary: "List installs that are not deleted, newest first",
    answer: schemas.Installs,
    handle: async ({ services }) => ({ installs: await listInstalls(services.context) }),
  }),
  defineRoute({
    method: "POST",
    path: "/api/installs",
    caller: "token",
    group: "installs",
    summary: "Create an install of an app's newest release",
    body: CreateInstall,
    answer: InstallView,
    handle: handlers.createNewInstall,
  }),
  defineRoute({
    method: "GET",
    path: "/api/installs/:name",
    caller: "token",
    group: "installs",
    summary: "Show an install with its components",
    params: schemas.InstallPath,
    answer: InstallView,
    handle: handlers.showInstall,
  }),
  defineRoute({
    method: "DELETE",
    path: "/api/installs/:name",
    caller: "token",
    group: "installs",
    summary: "Delete an install: its components, dependents first, then its sandbox",
    params: schemas.InstallPath,
    answer: InstallView,
    handle: handlers.removeInstall,
  }),
  defineRoute({
    method: "POST",
    path: "/api/installs/:name/deploy",
    caller: "token",
    group: "installs",
    summary:
      "Move an install to a release (the newest when none is named), and try again what failed",
    params: schemas.InstallPath,
    body: DeployRequest,
    answer: InstallView,
    handle: handlers.deployToInstall,
  }),
];

const jobs: readonly Route[] = [
  defineRoute({
    method: "GET",
    path: "/api/jobs",
    caller: "token",
    group: "jobs",
    summary: "List jobs, newest first",
    query: schemas.JobsQuery,
    answer: schemas.Jobs,
    handle: handlers.pageJobs,
  }),
  defineRoute({
    method: "GET",
    path: "/api/jobs/:id",
    caller: "token",
    group: "jobs",
    summary: "Show a job",
    params: schemas.JobPath,
    answer: JobView,
    handle: ({ services, params }) => viewJob(services.context.database, params.id),
  }),
  defineRoute({
    method: "GET",
    path: "/api/jobs/:id/logs",
    caller: "token",
    group: "jobs",
    summary:
      "Read a job's lines; with `follow=1` as they come, until it has ended (blank lines keep it alive)",
    params: schemas.JobPath,
    query: schemas.LogsQuery,
    answer: JobEvent,
    answerType: "application/x-ndjson",
    handle: handlers.sendLogs,
  }),
  defineRoute({
    method: "POST",
    path: "/api/jobs/:id/cancel",
    caller: "token",
    group: "jobs",
    summary: "Cancel a job; where an agent runs it, it is asked to stop",
    params: schemas.JobPath,
    answer: JobView,
    handle: handlers.cancelOneJob,
  }),
];

const agents: readonly Route[] = [
  defineRoute({
    method: "GET",
    path: "/api/agents",
    caller: "token",
    group: "agents",
    summary: "List agents",
    answer: schemas.Agents,
    handle: async ({ services }) => ({ agents: await listAgents(services.context.database) }),
  }),
  defineRoute({
    method: "POST",
    path: "/api/agents/code",
    caller: "token",
    group: "agents",
    summary: "Make a one-time enrolment code",
    body: CodeRequest,
    answer: CodeAnswer,
    handle: handlers.makeCode,
  }),
  defineRoute({
    method: "POST",
    path: enrolmentPath,
    caller: "enrolment-code",
    group: "agents",
    summary: "Trade an enrolment code for an agent's identity",
    body: EnrolmentRequest,
    answer: EnrolmentAnswer,
    handle: handlers.enrol,
  }),
];

const watching: readonly Route[] = [
  defineRoute({
    method: "GET",
    path: "/api/events",
    caller: "token",
    group: "watching",
    summary: "Read the audit events, oldest first",
    query: schemas.EventsQuery,
    answer: schemas.Events,
    handle: handlers.pageEvents,
  }),
  defineRoute({
    method: "GET",
    path: "/api/live",
    caller: "token",
    group: "watching",
    summary:
      "Watch installs, jobs, agents and builds: a server-sent event whenever something changed",
    answer: LiveView,
    answerType: "text/event-stream",
    handle: pages.sendLive,
  }),
  defineRoute({
    method: "GET",
    path: "/healthz",
    caller: "anyone",
    group: "watching",
    summary: "Whether the process is up",
    answer: schemas.Health,
    handle: pages.answerHealth,
  }),
  defineRoute({
    method: "GET",
    path: "/readyz",
    caller: "anyone",
    group: "watching",
    summary: "Whether the server can serve: its database answers and is migrated",
    answer: schemas.Health,
    handle: pages.answerReadiness,
  }),
  defineRoute({
    method: "GET",
    path: "/metrics",
    caller: "token",
    group: "watching",
    summary: "Numbers for Prometheus",
    answerType: "text/plain",
    handle: pages.answerMetrics,
  }),
];

const people: readonly Route[] = [
  defineRoute({
    method: "GET",
    path: "/",
    caller: "token",
    group: "pages",
    summary: "The status page",
    answerType: "text/html",
    page: true,
    handle: pages.showStatus,
  }),
  defineRoute({
    method: "GET",
    path: "/docs",
    caller: "token",
    group: "pages",
    summary: "This documentation",
    answerType: "text/html",
    page: true,
    handle: pages.showDocs,
  }),
  defineRoute({
    method: "GET",
    path: "/openapi.json",
    caller: "token",
    group: "pages",
    summary: "This documentation, as OpenAPI 3.1",
    handle: async ({ services }) => services.describeApi(),
  }),
  defineRoute({
    method: "GET",
    path: "/sign-in",
    caller: "anyone",
    group: "pages",
    summary: "The sign-in page",
    answerType: "text/html",
    handle: pages.showSignIn,
  }),
  defineRoute({
    method: "POST",
    path: "/sign-in",
    caller: "anyone",
    group: "pages",
    summary: "Trade a token for a session cookie",
    body: schemas.SignIn,
    bodyKind: "form",
    bodyBytesMax: 4096,
    answer: schemas.Empty,
    handle: pages.signIn,
  }),
  defineRoute({
    method: "POST",
    path: "/sign-out",
    caller: "token",
    group: "pages",
    summary: "End the session of this browser",
    bodyKind: "form",
    bodyBytesMax: 4096,
    answerType: "text/html",
    handle: pages.signOut,
  }),
];

/** Every route, by group. */
export const routes: readonly Route[] = [
  ...apps,
  ...installs,
  ...installHolds,
  ...jobs,
  ...jobReasons,
  ...agents,
  ...agentHolds,
  ...watching,
  ...people,
];
