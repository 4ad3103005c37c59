/**
 * Pages: the chunks of many jobs that came at the same time, in one blob. A file and a flush of its own
 * for each chunk would cost more than all else that is done for a short job.
 *
 * Invariants: as for any chunk (`log-chunks.ts`), the page is written before the rows that point into it,
 * and the primary key lets only one writer take a number. A page is never changed.
 */
import type { JobId } from "../model/ids.ts";
import type { JobKey } from "../protocol/job-key.ts";
import type { ServerContext } from "./context.ts";
import type { Sql } from "./database.ts";
import { encodeEvents, type Stretch } from "./log-chunks.ts";

/** A larger chunk is a blob of its own. */
export const pagedBytesMax = 64 * 1024;
const pageBytesMax = 4 * 1024 * 1024;

export interface PagedStretch {
  readonly key: JobKey;
  readonly stretch: Stretch;
}

/** A chunk that is in a page already, and needs its row. */
export interface PagedChunk extends PagedStretch {
  readonly blob: string;
  readonly offset: number;
  readonly sizeBytes: number;
}

/** Writes stretches of different jobs into pages; returns all but those that are too large for one. */
export async function writePages(
  context: ServerContext,
  stretches: readonly PagedStretch[],
): Promise<PagedChunk[]> {
  const pages: { blob: string; parts: Buffer[]; sizeBytes: number }[] = [];
  const chunks: PagedChunk[] = [];
  for (const { key, stretch } of stretches) {
    const content = encodeEvents(stretch.events);
    if (content.byteLength > pagedBytesMax) continue;
    let page = pages.at(-1);
    if (!page || page.sizeBytes + content.byteLength > pageBytesMax) {
      page = { blob: pageKey(context), parts: [], sizeBytes: 0 };
      pages.push(page);
    }
    const { blob, sizeBytes: offset } = page;
    chunks.push({ key, stretch, blob, offset, sizeBytes: content.byteLength });
    page.parts.push(content);
    page.sizeBytes += content.byteLength;
  }
  for (const { blob, parts } of pages) await context.blobs.write(blob, Buffer.concat(parts));
  return chunks;
}

/** Inserts the rows of chunks; returns the jobs whose number no other writer had taken. */
export async function insertChunks(
  sql: Sql,
  chunks: readonly PagedChunk[],
): Promise<ReadonlySet<JobId>> {
  if (chunks.length === 0) return new Set();
  const rows = await sql.query<{ job_id: JobId }>(
    `insert into log_chunks (job_id, generation, n, first_seq, last_seq, size_bytes, blob, blob_offset)
     select * from unnest($1::text[], $2::int[], $3::int[], $4::int[], $5::int[], $6::int[], $7::text[], $8::int[])
       as given (job_id, generation, n, first_seq, last_seq, size_bytes, blob, blob_offset)
     order by job_id
     on conflict do nothing returning job_id`,
    [
      chunks.map(({ key }) => key.jobId),
      chunks.map(({ key }) => key.epoch.generation),
      chunks.map(({ key }) => key.epoch.n),
      chunks.map(({ stretch }) => stretch.firstSeq),
      chunks.map(({ stretch }) => stretch.lastSeq),
      chunks.map(({ sizeBytes }) => sizeBytes),
      chunks.map(({ blob }) => blob),
      chunks.map(({ offset }) => offset),
    ],
  );
  return new Set(rows.map((row) => row.job_id));
}

/** By day, so that no folder grows without end; by time within it. */
function pageKey(context: ServerContext): string {
  const now = context.now();
  const day = now.toISOString().slice(0, 10);
  const random = Buffer.from(context.random(12)).toString("hex");
  return `logs/pages/${day}/${now.getTime()}-${random}`;
}
