/** What the routes of holds and of `why` do: ask the server's functions, answer with a view. */
import type { z } from "zod";
import type { Why } from "../../model/why.ts";
import type {
  AgentView,
  DismissRequest,
  DrainRequest,
  InstallView,
  LimitsRequest,
  PauseRequest,
} from "../../protocol/api.ts";
import { dismissConflict } from "../conflicts.ts";
import {
  drainAgent,
  noReason,
  pauseInstall,
  replaceAgent,
  resumeInstall,
  setJobsMax,
  undrainAgent,
} from "../holds.ts";
import { explainInstall, explainJob, viewAgent, viewInstallById } from "../views.ts";
import type { Call } from "./route.ts";
import type { WhyQuery } from "./schemas.ts";

type None = unknown;
type OfInstall<Body = None> = Call<{ name: string }, None, Body>;
type OfAgent<Body = None> = Call<{ id: string }, None, Body>;

/** Pauses an install, and shows it. */
export async function pauseOneInstall({
  services: { context },
  actor,
  params,
  body,
}: OfInstall<z.output<typeof PauseRequest>>): Promise<InstallView> {
  return viewInstallById(context, await pauseInstall(context, actor, params.name, body.reason));
}

/** Lets an install go on, and shows it. */
export async function resumeOneInstall({
  services: { context },
  actor,
  params,
}: OfInstall): Promise<InstallView> {
  return viewInstallById(context, await resumeInstall(context, actor, params.name));
}

/** Takes a conflict off the install's list, and shows the install. */
export async function dismissOneConflict({
  services: { context },
  actor,
  params,
  body,
}: OfInstall<z.output<typeof DismissRequest>>): Promise<InstallView> {
  return viewInstallById(context, await dismissConflict(context, actor, params.name, body.key));
}

/** Sets an install's limit of parallel jobs, and shows it. */
export async function limitInstall({
  services: { context },
  actor,
  params,
  body,
}: OfInstall<z.output<typeof LimitsRequest>>): Promise<InstallView> {
  return viewInstallById(context, await setJobsMax(context, actor, params.name, body.jobsMax));
}

/** Revokes an install's agent, and gives the code for its successor. */
export function replaceAgentOf({
  services: { context },
  actor,
  params,
}: OfInstall): Promise<{ code: string; expiresAt: string }> {
  return replaceAgent(context, actor, params.name);
}

/** Why an install, one of its components or one of its deploys is where it is. */
export function explainOneInstall({
  services: { context },
  params,
  query: { component, deploy },
}: Call<{ name: string }, z.output<typeof WhyQuery>, None>): Promise<Why> {
  if (component !== undefined) {
    return explainInstall(context, params.name, { kind: "component", name: component });
  }
  if (deploy === undefined) return explainInstall(context, params.name, { kind: "install" });
  const number = deploy === "current" ? null : deploy;
  return explainInstall(context, params.name, { kind: "deploy", number });
}

/** Why a job is where it is. */
export function explainOneJob({
  services: { context },
  params,
}: Call<{ id: string }, None, None>): Promise<Why> {
  return explainJob(context, params.id);
}

/** Shows an agent. */
export function showAgent({ services: { context }, params }: OfAgent): Promise<AgentView> {
  return viewAgent(context.database, params.id);
}

/** Gives an agent nothing new, and shows it. */
export async function drainOneAgent({
  services: { context },
  actor,
  params,
  body,
}: OfAgent<z.output<typeof DrainRequest>>): Promise<AgentView> {
  const reason = body.reason || noReason;
  return viewAgent(context.database, await drainAgent(context, actor, params.id, reason));
}

/** Lets an agent take jobs again, and shows it. */
export async function undrainOneAgent({
  services: { context },
  actor,
  params,
}: OfAgent): Promise<AgentView> {
  return viewAgent(context.database, await undrainAgent(context, actor, params.id));
}
