/** Everything that the status page shows, in one value. */
import type { LiveView } from "../../protocol/api.ts";
import type { ServerContext } from "../context.ts";
import { listAgents } from "./agents.ts";
import { listBuilds } from "./apps.ts";
import { listInstalls } from "./installs.ts";
import { listRecentJobs } from "./jobs.ts";

const installsShown = 100;
const agentsShown = 200;
const unfinishedShown = 100;
const finishedShown = 50;
const buildsShown = 50;

/** What people watch, as it is now. */
export async function viewLive(context: ServerContext): Promise<LiveView> {
  const sql = context.database;
  const [installs, jobs, agents, builds] = await Promise.all([
    listInstalls(context, installsShown),
    listRecentJobs(sql, unfinishedShown, finishedShown),
    listAgents(sql, agentsShown),
    listBuilds(sql, null, buildsShown),
  ]);
  return { installs, jobs, agents, builds };
}
