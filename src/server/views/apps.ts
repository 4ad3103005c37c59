/** Reads apps, builds and releases for people, newest first, a page at most. */
import type { AppView, BuildView, ReleaseView } from "../../protocol/api.ts";
import type { Sql } from "../database.ts";

const appsMax = 500;
const buildsMax = 200;
const releasesMax = 200;

/** Every app with its newest configuration and release. */
export async function listApps(sql: Sql): Promise<AppView[]> {
  return sql.query<AppView>(
    `select a.id, a.name, coalesce(c.config ->> 'displayName', a.name) as "displayName",
            c.number as "configNumber", r.number as "releaseNumber"
     from apps a
     left join lateral (
       select number, config from app_configs where app_id = a.id order by number desc limit 1) c on true
     left join lateral (
       select number from releases where app_id = a.id order by number desc limit 1) r on true
     order by a.name limit $1`,
    [appsMax],
  );
}

/** Builds of one app, or of all. */
export function listBuilds(sql: Sql, app: string | null, limit = buildsMax): Promise<BuildView[]> {
  return selectBuilds(
    sql,
    "where $1::text is null or a.name = $1 order by b.created_at desc, b.id desc limit $2",
    [app, Math.min(limit, buildsMax)],
  );
}

/** The builds that one configuration of an app is made of, by component. */
export function listBuildsOfConfig(
  sql: Sql,
  appId: string,
  configNumber: number,
): Promise<BuildView[]> {
  return selectBuilds(
    sql,
    `join config_builds c on c.build_id = b.id
     where c.app_id = $1 and c.config_number = $2 order by b.component`,
    [appId, configNumber],
  );
}

/** Releases of one app, or of all. */
export async function listReleases(sql: Sql, app: string | null): Promise<ReleaseView[]> {
  const rows = await sql.query<{
    id: string;
    app: string;
    number: number;
    config_number: number;
    components: Record<string, { artifact: { digest: string } }>;
    created_at: Date;
  }>(
    `select r.id, a.name as app, r.number, r.config_number, r.components, r.created_at
     from releases r join apps a on a.id = r.app_id
     where $1::text is null or a.name = $1
     order by r.created_at desc, r.id desc limit $2`,
    [app, releasesMax],
  );
  return rows.map(({ config_number, created_at, components, ...row }) => ({
    ...row,
    configNumber: config_number,
    components: Object.fromEntries(
      Object.entries(components).map(([name, { artifact }]) => [name, { digest: artifact.digest }]),
    ),
    createdAt: created_at.toISOString(),
  }));
}

async function selectBuilds(
  sql: Sql,
  rest: string,
  values: readonly unknown[],
): Promise<BuildView[]> {
  const rows = await sql.query<
    Omit<BuildView, "jobId" | "createdAt"> & { job_id: string; created_at: Date }
  >(
    `select b.id, a.name as app, b.component, b.state, b.job_id, b.artifact, b.created_at
     from builds b join apps a on a.id = b.app_id ${rest}`,
    values,
  );
  return rows.map(({ job_id, created_at, ...row }) => ({
    ...row,
    jobId: job_id,
    createdAt: created_at.toISOString(),
  }));
}
