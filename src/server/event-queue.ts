/**
 * The queue that the audit log seals. Changes of rows are told by triggers; this is for what changes
 * no row of its own: a token that was signed, a refusal. Always in the transaction of its cause.
 */
import type { Sql } from "./database.ts";

export interface NewEvent {
  readonly kind: string;
  readonly actor: string;
  readonly installId?: string | null;
  readonly jobId?: string | null;
  readonly component?: string | null;
  /** Never a secret. */
  readonly data?: object;
}

/** Puts one event into the queue. */
export async function recordEvent(sql: Sql, event: NewEvent): Promise<void> {
  await sql.query(
    `insert into events (kind, actor, install_id, job_id, component, data)
     values ($1, $2, $3, $4, $5, $6)`,
    [
      event.kind,
      event.actor,
      event.installId ?? null,
      event.jobId ?? null,
      event.component ?? null,
      JSON.stringify(event.data ?? {}),
    ],
  );
}
