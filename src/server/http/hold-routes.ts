/** The rows of the route table for what people hold back, and for `why`. */
import {
  AgentView,
  CodeAnswer,
  DismissRequest,
  DrainRequest,
  InstallView,
  LimitsRequest,
  PauseRequest,
  WhyAnswer,
} from "../../protocol/api.ts";
import * as handlers from "./hold-handlers.ts";
import { defineRoute, type Route } from "./route.ts";
import * as schemas from "./schemas.ts";

/** Of installs. */
export const installHolds: readonly Route[] = [
  defineRoute({
    method: "POST",
    path: "/api/installs/:name/pause",
    caller: "token",
    group: "installs",
    summary:
      "Pause an install with a reason: no job is made or begun, jobs under way finish; again, and the reason changes",
    params: schemas.InstallPath,
    body: PauseRequest,
    answer: InstallView,
    handle: handlers.pauseOneInstall,
  }),
  defineRoute({
    method: "POST",
    path: "/api/installs/:name/resume",
    caller: "token",
    group: "installs",
    summary: "Let a paused install go on; limits to start are longer by the time of the pause",
    params: schemas.InstallPath,
    answer: InstallView,
    handle: handlers.resumeOneInstall,
  }),
  defineRoute({
    method: "POST",
    path: "/api/installs/:name/limits",
    caller: "token",
    group: "installs",
    summary: "Limit how many jobs of an install are under way at once",
    params: schemas.InstallPath,
    body: LimitsRequest,
    answer: InstallView,
    handle: handlers.limitInstall,
  }),
  defineRoute({
    method: "POST",
    path: "/api/installs/:name/conflicts/dismiss",
    caller: "token",
    group: "installs",
    summary:
      "Say that a person has looked at what an older try of a job was refused to write; it stays in the install",
    params: schemas.InstallPath,
    body: DismissRequest,
    answer: InstallView,
    handle: handlers.dismissOneConflict,
  }),
  defineRoute({
    method: "POST",
    path: "/api/installs/:name/replace-agent",
    caller: "token",
    group: "installs",
    summary:
      "Revoke the install's agent and make a one-time code for a new one, which adopts or ends what the old one ran",
    params: schemas.InstallPath,
    answer: CodeAnswer,
    handle: handlers.replaceAgentOf,
  }),
  defineRoute({
    method: "GET",
    path: "/api/installs/:name/why",
    caller: "token",
    group: "installs",
    summary:
      "Why an install, one of its components or one of its deploys (a number, or `current`) is where it is",
    params: schemas.InstallPath,
    query: schemas.WhyQuery,
    answer: WhyAnswer,
    handle: handlers.explainOneInstall,
  }),
];

/** Of jobs. */
export const jobReasons: readonly Route[] = [
  defineRoute({
    method: "GET",
    path: "/api/jobs/:id/why",
    caller: "token",
    group: "jobs",
    summary: "Why a job is where it is, what it waits for, and what would unblock it",
    params: schemas.JobPath,
    answer: WhyAnswer,
    handle: handlers.explainOneJob,
  }),
];

/** Of agents. */
export const agentHolds: readonly Route[] = [
  defineRoute({
    method: "GET",
    path: "/api/agents/:id",
    caller: "token",
    group: "agents",
    summary: "Show an agent",
    params: schemas.AgentPath,
    answer: AgentView,
    handle: handlers.showAgent,
  }),
  defineRoute({
    method: "POST",
    path: "/api/agents/:id/drain",
    caller: "token",
    group: "agents",
    summary: "Drain an agent: it finishes what it runs, and gets nothing new",
    params: schemas.AgentPath,
    body: DrainRequest,
    answer: AgentView,
    handle: handlers.drainOneAgent,
  }),
  defineRoute({
    method: "POST",
    path: "/api/agents/:id/undrain",
    caller: "token",
    group: "agents",
    summary: "Let a draining agent take jobs again",
    params: schemas.AgentPath,
    answer: AgentView,
    handle: handlers.undrainOneAgent,
  }),
];
