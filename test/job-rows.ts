/** Rows for tests of the job machine: installs with their agents, and jobs that differ only where a test says so. */
import { randomBytes } from "node:crypto";
import { type AgentId, createId, type InstallId, type JobId } from "../src/model/ids.ts";
import type { Database } from "../src/server/database.ts";
import type { Asker, NewJob } from "../src/server/job-machine.ts";

/** The connection that every agent of `addAgent` has. */
export const newest = "newest";

/** An app; its id is its name. */
export async function addApp(database: Database, id = "app_a"): Promise<void> {
  await database.query("insert into apps (id, name) values ($1, $1)", [id]);
}

export async function addInstall(database: Database, app = "app_a"): Promise<InstallId> {
  const id = createId("ins", new Date(), randomBytes);
  await database.query(
    "insert into installs (id, app_id, name, sandbox_type) values ($1, $2, $1, 'local')",
    [id, app],
  );
  return id;
}

/** An agent of an install, or a build agent; connected. */
export async function addAgent(database: Database, install: InstallId | null): Promise<AgentId> {
  const id = createId("agt", new Date(), randomBytes);
  await database.query(
    `insert into agents (id, role, install_id, public_key, connection, connected_at)
     values ($1, $2, $3, $1, $4, clock_timestamp())`,
    [id, install ? "install" : "build", install, newest],
  );
  return id;
}

export function ask(agentId: AgentId, connection = newest): Asker {
  return { agentId, connection };
}

/** A job of an install, or of the build queue with `{ queue: "build" }`. */
export function newJob(install: InstallId | null, change: Partial<NewJob> = {}): NewJob {
  return {
    id: createId("job", new Date(), randomBytes),
    queue: install ?? "build",
    operation: install ? "plan" : "build",
    appId: "app_a",
    installId: install,
    component: "c",
    manifest: "m",
    manifestDigest: "d",
    fingerprint: null,
    artifactDigest: null,
    deploy: 1,
    generation: 1,
    priority: 0,
    startSeconds: null,
    retry: { attempts: 3, on: ["unavailable"], backoffSeconds: 0.5, backoffSecondsMax: 4 },
    ...change,
  };
}

/** Lets a lease lapse, or a backoff or a limit to start pass, without waiting for it. */
export async function makePast(
  database: Database,
  column: "lease_expires_at" | "not_before" | "start_by",
  id: JobId,
): Promise<void> {
  await database.query(
    `update jobs set ${column} = clock_timestamp() - interval '1 second'
     where id = $1 and outcome is null and (agent_id is null) = $2`,
    [id, column !== "lease_expires_at"],
  );
}
