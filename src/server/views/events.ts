/** Reads the event queue for people, oldest first, so that a reader can go on where it stopped. */
import type { EventView } from "../../protocol/api.ts";
import type { Sql } from "../database.ts";

export const eventsPageMax = 1000;

export interface EventFilter {
  readonly installId: string | null;
  readonly jobId: string | null;
  /** Events after this one. */
  readonly after: number;
  readonly limit: number;
}

/** One page of events; `next` is what to ask for the following one, null at the end. */
export async function listEvents(
  sql: Sql,
  { installId, jobId, after, limit }: EventFilter,
): Promise<{ events: EventView[]; next: string | null }> {
  const size = Math.min(limit, eventsPageMax);
  const rows = await sql.query<
    Omit<EventView, "id" | "jobId" | "at"> & { id: number; job_id: string | null; at: Date }
  >(
    `select e.id, e.kind, e.actor, i.name as install, e.job_id, e.component, e.data, e.at
     from events e left join installs i on i.id = e.install_id
     where e.id > $3 and ($1::text is null or e.install_id = $1)
       and ($2::text is null or e.job_id = $2)
     order by e.id limit $4`,
    [installId, jobId, after, size + 1],
  );
  const events = rows.slice(0, size).map(({ id, job_id, at, ...row }) => ({
    ...row,
    id: String(id),
    jobId: job_id,
    at: at.toISOString(),
  }));
  return { events, next: rows.length > size ? (events.at(-1)?.id ?? null) : null };
}
