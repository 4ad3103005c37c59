/** What the server shows to people and programs: rows as the views of `protocol/api.ts`. */
export { listAgents, viewAgent } from "./views/agents.ts";
export { listApps, listBuilds, listBuildsOfConfig, listReleases } from "./views/apps.ts";
export { eventsPageMax, listEvents } from "./views/events.ts";
export { findInstallId, listInstalls, viewInstallById } from "./views/installs.ts";
export { jobsPageMax, listJobs, listRecentJobs, noJob, viewJob } from "./views/jobs.ts";
export { viewLive } from "./views/live.ts";
export { explainInstall, explainJob } from "./views/why.ts";
