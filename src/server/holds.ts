/**
 * What people hold back: an install that is paused, an agent that drains, an agent that is replaced, a
 * limit of parallel jobs. Each is one transaction, and none of them touches a job that is under way.
 *
 *   install   goes on --pause--> paused --resume--> goes on     no job is made or begun while it is paused
 *   agent     takes jobs --drain--> draining --undrain--> takes jobs
 *             either --replace--> revoked                       its jobs stay its own until a new agent says hello
 *
 * Invariants: time in a pause counts against no job's limit to start; a replaced agent's key opens
 * nothing from the commit on, and at most one enrolment code of its install is good.
 */
import { Fault } from "../model/fault.ts";
import { type AgentId, type InstallId, isId } from "../model/ids.ts";
import type { ServerContext } from "./context.ts";
import { onlyRow, type Sql } from "./database.ts";
import { insertEnrolmentCode } from "./enrolment.ts";
import { recordEvent } from "./event-queue.ts";
import { lockInstall } from "./installs.ts";
import { buildQueue, resumeStarts } from "./job-machine.ts";

/** Stands where a person gave none. */
export const noReason = "no reason given";

/** Holds an install: no job is made or begun; jobs under way finish. A second pause changes the reason. */
export async function pauseInstall(
  context: ServerContext,
  actor: string,
  name: string,
  reason: string,
): Promise<InstallId> {
  const id = await context.database.transaction(actor, async (sql) => {
    const install = await lockInstall(sql, name);
    const { before } = onlyRow(
      await sql.query<{ before: string | null }>(
        `update installs set paused_at = coalesce(installs.paused_at, clock_timestamp()),
           paused_by = $2, pause_reason = $3
         from (select paused_at, pause_reason from installs where id = $1) as old
         where id = $1 returning old.pause_reason as before`,
        [install.id, actor, reason],
      ),
    );
    // The trigger tells of pauses that begin and end; another reason is news too.
    if (before !== null && before !== reason) {
      const data = { reason, by: actor, before };
      await recordEvent(sql, {
        kind: "install.pause_changed",
        actor,
        installId: install.id,
        data,
      });
    }
    return install.id;
  });
  context.wake.notify("live");
  return id;
}

/** Lets a paused install go on; the time of the pause is given back to what waited. Harmless when it is not paused. */
export async function resumeInstall(
  context: ServerContext,
  actor: string,
  name: string,
): Promise<InstallId> {
  const id = await context.database.transaction(actor, async (sql) => {
    const install = await lockInstall(sql, name);
    const paused = await sql.query(
      "select 1 from installs where id = $1 and paused_at is not null",
      [install.id],
    );
    if (paused.length === 0) return install.id;
    await resumeStarts(sql, install.id, "paused_at");
    await sql.query(
      `update installs set paused_at = null, paused_by = null, pause_reason = null,
         reconcile_due_at = clock_timestamp() where id = $1`,
      [install.id],
    );
    return install.id;
  });
  context.wake.notify("reconcile");
  context.wake.notify(`jobs:${id}`);
  context.wake.notify(`jobs:${buildQueue}`);
  context.wake.notify("live");
  return id;
}

/** Sets how many jobs of an install may be under way at once; null: as many as its agent has slots. */
export async function setJobsMax(
  context: ServerContext,
  actor: string,
  name: string,
  jobsMax: number | null,
): Promise<InstallId> {
  const id = await context.database.transaction(actor, async (sql) => {
    const install = await lockInstall(sql, name);
    const changed = await sql.query(
      "update installs set jobs_max = $2 where id = $1 and jobs_max is distinct from $2 returning id",
      [install.id, jobsMax],
    );
    if (changed.length > 0) {
      await recordEvent(sql, {
        kind: "install.limited",
        actor,
        installId: install.id,
        data: { jobsMax },
      });
    }
    return install.id;
  });
  context.wake.notify(`jobs:${id}`);
  context.wake.notify("live");
  return id;
}

/** Gives an agent, named by its id or by its install, nothing new; what it runs it finishes. */
export async function drainAgent(
  context: ServerContext,
  actor: string,
  agentOrInstall: string,
  reason: string,
): Promise<AgentId> {
  const agent = await context.database.transaction(actor, async (sql) => {
    const found = await lockAgent(sql, agentOrInstall);
    const { before } = onlyRow(
      await sql.query<{ before: string | null }>(
        `update agents set draining_at = coalesce(agents.draining_at, clock_timestamp()), drain_reason = $2
         from (select drain_reason from agents where id = $1) as old
         where id = $1 returning old.drain_reason as before`,
        [found.id, reason],
      ),
    );
    if (before !== null && before !== reason) {
      const data = { agent: found.id, reason, before };
      await recordEvent(sql, {
        kind: "agent.drain_changed",
        actor,
        installId: found.install_id,
        data,
      });
    }
    return found;
  });
  wakeAgent(context, agent);
  return agent.id;
}

/** Lets an agent take jobs again. Harmless when it does not drain. */
export async function undrainAgent(
  context: ServerContext,
  actor: string,
  agentOrInstall: string,
): Promise<AgentId> {
  const agent = await context.database.transaction(actor, async (sql) => {
    const found = await lockAgent(sql, agentOrInstall);
    await sql.query("update agents set draining_at = null, drain_reason = null where id = $1", [
      found.id,
    ]);
    return found;
  });
  wakeAgent(context, agent);
  return agent.id;
}

/**
 * Puts another agent in the place of an install's: revokes the old key, raises the generation, makes a
 * code for the new one, and spoils every older code. What the old agent still holds stays with it, in
 * the database, until the new one has said what it found. Asking again before anyone enrolled gives a
 * new code and raises nothing.
 */
export async function replaceAgent(
  context: ServerContext,
  actor: string,
  installName: string,
): Promise<{ code: string; expiresAt: string }> {
  const done = await context.database.transaction(actor, async (sql) => {
    const install = await lockInstall(sql, installName);
    const known = await sql.query<{ id: AgentId; revoked: boolean }>(
      "select id, revoked_at is not null as revoked from agents where install_id = $1 for update",
      [install.id],
    );
    if (known.length === 0) {
      throw new Fault(
        "conflict",
        `Expected an install whose agent has enrolled, but \`${installName}\` never had one. ` +
          `Make a code with \`landfall agents code --install ${installName}\`.`,
      );
    }
    const old = known.filter(({ revoked }) => !revoked).map(({ id }) => id);
    if (old.length > 0) await revokeAgents(sql, actor, install.id, old);
    await sql.query(
      `update enrolment_codes set expires_at = clock_timestamp()
       where install_id = $1 and used_at is null and expires_at > clock_timestamp()`,
      [install.id],
    );
    const { code, expiresAt } = await insertEnrolmentCode(context, sql, "install", install.id);
    return { id: install.id, old, answer: { code, expiresAt: expiresAt.toISOString() } };
  });
  for (const id of done.old) context.wake.notify(`agent:${id}`);
  context.wake.notify(`jobs:${done.id}`);
  context.wake.notify("live");
  return done.answer;
}

async function revokeAgents(
  sql: Sql,
  actor: string,
  installId: InstallId,
  agents: readonly AgentId[],
): Promise<void> {
  await sql.query("update agents set revoked_at = clock_timestamp() where id = any($1)", [agents]);
  const { generation } = onlyRow(
    await sql.query<{ generation: number }>(
      "update installs set generation = generation + 1 where id = $1 returning generation",
      [installId],
    ),
  );
  const data = { agents, generation };
  await recordEvent(sql, { kind: "agent.replaced", actor, installId, data });
}

interface AgentRow {
  readonly id: AgentId;
  readonly install_id: InstallId | null;
  readonly revoked: boolean;
}

async function lockAgent(sql: Sql, agentOrInstall: string): Promise<AgentRow> {
  const installId = isId("agt", agentOrInstall)
    ? null
    : (await lockInstall(sql, agentOrInstall)).id;
  const [agent] = await sql.query<AgentRow>(
    `select id, install_id, revoked_at is not null as revoked from agents
     where ${installId === null ? "id = $1" : "install_id = $1 and revoked_at is null"} for update`,
    [installId ?? agentOrInstall],
  );
  if (agent && !agent.revoked) return agent;
  if (agent) {
    throw new Fault(
      "conflict",
      `Expected an agent that counts, but \`${agent.id}\` was revoked. See \`landfall agents\`.`,
    );
  }
  throw new Fault(
    "not_found",
    installId === null
      ? `Expected the id of an agent, got \`${agentOrInstall}\`. List them with \`landfall agents\`.`
      : `Expected an install with an agent, but \`${agentOrInstall}\` has none.`,
  );
}

function wakeAgent(context: ServerContext, agent: AgentRow): void {
  context.wake.notify(`jobs:${agent.install_id ?? buildQueue}`);
  context.wake.notify("live");
}
