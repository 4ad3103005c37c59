/** The schemas of the API that have a name in its description, and the small ones of paths and queries. */
import { z } from "zod";
import { jobStates } from "../../model/job.ts";
import {
  AgentView,
  ApiError,
  AppView,
  BuildView,
  CodeAnswer,
  CodeRequest,
  ComponentView,
  CreateInstall,
  DeployRequest,
  DrainRequest,
  EventView,
  InstallView,
  JobView,
  LimitsRequest,
  LiveView,
  PauseRequest,
  ReleaseView,
  SyncAnswer,
  SyncRequest,
  WhyAnswer,
} from "../../protocol/api.ts";
import { EnrolmentAnswer, EnrolmentRequest } from "../../protocol/enrolment.ts";
import { JobEvent } from "../../protocol/events.ts";
import { DigestText } from "../../protocol/json-schema.ts";
import { eventsPageMax, jobsPageMax } from "../views.ts";

const next = z.string().nullable().describe("What to give as `after` for the next page, if any.");
const nameText = z.string().min(1).max(100);

export const Empty = z.object({});
export const SignIn = z.object({ token: z.string().max(200) });
export const Health = z.object({
  status: z.enum(["ok", "unavailable"]),
  reason: z.string().nullable(),
});
export const Apps = z.object({ apps: z.array(AppView) });
export const Builds = z.object({ builds: z.array(BuildView) });
export const Releases = z.object({ releases: z.array(ReleaseView) });
export const Installs = z.object({ installs: z.array(InstallView) });
export const Jobs = z.object({ jobs: z.array(JobView), next });
export const Agents = z.object({ agents: z.array(AgentView) });
export const Events = z.object({ events: z.array(EventView), next });

/** By the name under which the description refers to them. */
export const namedSchemas: Readonly<Record<string, z.ZodType>> = {
  ApiError,
  AppView,
  BuildView,
  ReleaseView,
  ComponentView,
  InstallView,
  JobView,
  JobEvent,
  AgentView,
  EventView,
  LiveView,
  SyncRequest,
  SyncAnswer,
  CreateInstall,
  DeployRequest,
  PauseRequest,
  LimitsRequest,
  DrainRequest,
  WhyAnswer,
  CodeRequest,
  CodeAnswer,
  EnrolmentRequest,
  EnrolmentAnswer,
  Empty,
  SignIn,
  Health,
  Apps,
  Builds,
  Releases,
  Installs,
  Jobs,
  Agents,
  Events,
};

export const DigestPath = z.object({ digest: DigestText });
export const InstallPath = z.object({ name: nameText });
export const JobPath = z.object({ id: nameText });
export const AgentPath = z.object({ id: nameText });

export const WhyQuery = z.object({
  component: nameText.exactOptional(),
  deploy: z.union([z.literal("current"), z.coerce.number().int().min(1)]).exactOptional(),
});

export const AppQuery = z.object({ app: nameText.exactOptional() });

export const JobsQuery = z.object({
  install: nameText.exactOptional(),
  state: z.enum(jobStates).exactOptional(),
  after: nameText.exactOptional(),
  limit: z.coerce.number().int().min(1).max(jobsPageMax).default(100),
});

export const EventsQuery = z.object({
  install: nameText.exactOptional(),
  job: nameText.exactOptional(),
  after: z.coerce.number().int().min(0).default(0),
  limit: z.coerce.number().int().min(1).max(eventsPageMax).default(100),
});

export const LogsQuery = z.object({
  after: z.coerce.number().int().min(0).default(0),
  follow: z.enum(["0", "1", "false", "true"]).default("0"),
});
