/**
 * Reads installs for people: a handful of statements for any number of installs.
 *
 * Invariant: the cost is bounded: installs, and the jobs read of each, have a maximum.
 */
import type { AppConfig } from "../../model/app-config.ts";
import { Fault } from "../../model/fault.ts";
import type { InstallView } from "../../protocol/api.ts";
import type { ServerContext } from "../context.ts";
import type { Sql } from "../database.ts";
import { actorName } from "./actor-name.ts";
import {
  type DeployedRow,
  type InstallJobRow,
  type InstallRow,
  type NewestBuildRow,
  viewInstall,
} from "./install-view.ts";

/** As many of an install's conflicts as are told at once. */
const conflictsMax = 100;
export const installsMax = 500;
const jobsOfInstallMax = 5000;

/** Installs that are not deleted, newest first. */
export async function listInstalls(
  context: ServerContext,
  limit = installsMax,
): Promise<InstallView[]> {
  const rows = await selectInstalls(
    context.database,
    "where i.state <> 'deleted' order by i.created_at desc, i.id desc limit $1",
    [Math.min(limit, installsMax)],
  );
  return assemble(context, rows);
}

/** One install by id; `Fault` when there is none. */
export async function viewInstallById(context: ServerContext, id: string): Promise<InstallView> {
  const [view] = await assemble(
    context,
    await selectInstalls(context.database, "where i.id = $1", [id]),
  );
  if (!view) throw noInstall(id);
  return view;
}

/** The id of the install with this name (or id); the newest deleted one when none lives. */
export async function findInstallId(sql: Sql, nameOrId: string): Promise<string> {
  const [row] = await sql.query<{ id: string }>(
    `select id from installs where name = $1 or id = $1
     order by (state <> 'deleted') desc, created_at desc limit 1`,
    [nameOrId],
  );
  if (!row) throw noInstall(nameOrId);
  return row.id;
}

function noInstall(name: string): Fault {
  return new Fault(
    "not_found",
    `Expected the name of an install, got \`${name}\`. List them with \`landfall installs list\`.`,
  );
}

function selectInstalls(sql: Sql, rest: string, values: readonly unknown[]): Promise<InstallRow[]> {
  return sql.query<InstallRow>(
    `select i.id, i.name, i.app_id, apps.name as app, i.state, i.sandbox_type, i.sandbox, i.deploy,
            i.reconcile_due_at is not null as due,
            exists (select from jobs j where j.install_id = i.id
                    and j.state not in ('succeeded', 'failed', 'cancelled')) as busy,
            i.created_at, i.release_id,
            r.number as release_number, r.components as release_components,
            coalesce(r.config_number,
                     (select max(number) from app_configs c where c.app_id = i.app_id)) as config_number,
            a.id as agent_id, a.connection is not null as agent_connected, a.seen_at as agent_seen_at,
            a.drain_reason, (select count(*) from jobs where agent_id = a.id) as agent_jobs,
            a.version as agent_version,
            i.paused_at, ${actorName("i.paused_by")} as paused_by, i.pause_reason, i.recall_since, i.jobs_max,
            (select coalesce(jsonb_agg(to_jsonb(told) order by seen_at), '[]') from (
               select component, key, job_id, seen_at from conflicts
               where install_id = i.id and dismissed_at is null
               order by seen_at limit ${conflictsMax}) as told) as conflicts
     from installs i
     join apps on apps.id = i.app_id
     left join releases r on r.id = i.release_id
     left join agents a on a.install_id = i.id and a.revoked_at is null
     ${rest}`,
    values,
  );
}

async function assemble(
  context: ServerContext,
  installs: readonly InstallRow[],
): Promise<InstallView[]> {
  if (installs.length === 0) return [];
  const sql = context.database;
  const ids = installs.map(({ id }) => id);
  const [configs, deployed, jobs, builds] = await Promise.all([
    readConfigs(sql, installs),
    sql.query<DeployedRow>(
      `select install_id, component, type, dependencies, artifact, fingerprint, outputs, release_id
       from install_components where install_id = any($1) order by component`,
      [ids],
    ),
    readJobs(sql, installs),
    readBuilds(sql, installs),
  ]);
  const deployedOf = Map.groupBy(deployed, (row) => row.install_id);
  const jobsOf = Map.groupBy(jobs, (row) => row.install_id);
  const buildsOf = Map.groupBy(builds, (row) => `${row.app_id} ${row.config_number}`);
  return installs.map((install) => {
    const configKey = `${install.app_id} ${install.config_number}`;
    return viewInstall({
      install,
      config: configs.get(configKey) ?? null,
      deployed: deployedOf.get(install.id) ?? [],
      jobs: jobsOf.get(install.id) ?? [],
      builds: install.release_id === null ? (buildsOf.get(configKey) ?? []) : [],
      progress: context.progress,
    });
  });
}

async function readConfigs(
  sql: Sql,
  installs: readonly InstallRow[],
): Promise<Map<string, AppConfig>> {
  const rows = await sql.query<{ app_id: string; number: number; config: AppConfig }>(
    `select app_id, number, config from app_configs
     where (app_id, number) in (select * from unnest($1::text[], $2::int[]))`,
    [installs.map((row) => row.app_id), installs.map((row) => row.config_number)],
  );
  return new Map(rows.map((row) => [`${row.app_id} ${row.number}`, row.config]));
}

/** Jobs of the deploy that was read with the install, and whatever is unfinished, newest first. */
function readJobs(sql: Sql, installs: readonly InstallRow[]): Promise<InstallJobRow[]> {
  return sql.query<InstallJobRow>(
    `select i.id as install_id, j.id, j.component, j.operation, j.state, j.outcome
     from unnest($1::text[], $2::int[]) as i (id, deploy)
     cross join lateral (
       select id, component, operation, state, outcome, deploy, created_at from jobs
       where install_id = i.id order by created_at desc, id desc limit $3) j
     where j.deploy = i.deploy or j.outcome is null
     order by j.created_at desc, j.id desc`,
    [installs.map(({ id }) => id), installs.map(({ deploy }) => deploy), jobsOfInstallMax],
  );
}

/** The builds of the newest configuration, for installs that have no release yet. */
async function readBuilds(
  sql: Sql,
  installs: readonly InstallRow[],
): Promise<(NewestBuildRow & { app_id: string; config_number: number })[]> {
  const unreleased = installs.filter((row) => row.release_id === null);
  if (unreleased.length === 0) return [];
  return sql.query(
    `select c.app_id, c.config_number, c.component, b.job_id, b.state, j.outcome,
            b.artifact ->> 'digest' as digest
     from config_builds c join builds b on b.id = c.build_id join jobs j on j.id = b.job_id
     where (c.app_id, c.config_number) in (select * from unnest($1::text[], $2::int[]))`,
    [unreleased.map((row) => row.app_id), unreleased.map((row) => row.config_number)],
  );
}
