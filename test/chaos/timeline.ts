/** What happened in a round, by time: the faults, and what the audit log tells of jobs and agents. */
import type { DatabaseReader } from "./database-reader.ts";

export interface Timeline {
  add(text: string): void;
  /** Merges in the audit events after this one. */
  addEvents(database: DatabaseReader, after: string): Promise<void>;
  /** One line each, oldest first. */
  lines(): string[];
}

interface EventRow {
  readonly id: string;
  readonly kind: string;
  readonly actor: string;
  readonly install: string | null;
  readonly job_id: string | null;
  readonly component: string | null;
  readonly data: object;
  readonly ms: number;
}

/** An empty one, which begins now. */
export function createTimeline(): Timeline {
  const startMs = Date.now();
  const entries: { ms: number; text: string }[] = [];
  return {
    add: (text) => void entries.push({ ms: Date.now(), text }),
    async addEvents(database, after) {
      const rows = await database.query<EventRow>(
        `select events.id::text, kind, actor, installs.name as install, job_id, component, data,
                (extract(epoch from at) * 1000)::float8 as ms
         from events left join installs on installs.id = install_id where events.id > $1 order by events.id`,
        [after],
      );
      for (const row of rows) {
        const where = [row.install, row.component, row.job_id].filter(Boolean).join(" ");
        const text = `#${row.id} ${row.kind} ${where} ${row.actor} ${JSON.stringify(row.data)}`;
        entries.push({ ms: row.ms, text });
      }
    },
    lines: () =>
      entries
        .toSorted((a, b) => a.ms - b.ms)
        .map(({ ms, text }) => `${((ms - startMs) / 1000).toFixed(3).padStart(9)} ${text}`),
  };
}
