/**
 * Looks at the database for connections that were woken: has its agent been replaced, revoked or
 * drained, what is to be cancelled, is there a job for it?
 *
 * Whoever is woken while a look is under way shares the next one: one connection is served at once,
 * ten thousand that wake together cost a few statements.
 */
import type { AgentId, JobId } from "../../model/ids.ts";
import type { ServerContext } from "../context.ts";

const looksMax = 1000;

/** Someone to look for. */
export interface Looker {
  readonly agentId: AgentId;
  readonly queue: string;
  found(finding: Finding): void;
}

export interface Finding {
  /** The agent's newest connection; null when its row names none. */
  readonly connection: string | null;
  readonly revoked: boolean;
  readonly draining: boolean;
  /** A job of its queue may be offered now. */
  readonly waiting: boolean;
  readonly cancels: readonly { id: JobId; generation: number; n: number }[];
}

export interface Lookout {
  look(looker: Looker): void;
}

/** The lookout of one gateway. */
export function createLookout(context: ServerContext): Lookout {
  const due = new Set<Looker>();
  let isLooking = false;

  async function run(): Promise<void> {
    isLooking = true;
    while (due.size > 0) {
      const lookers = [...due].slice(0, looksMax);
      for (const looker of lookers) due.delete(looker);
      try {
        const findings = await findAll(context, lookers);
        for (const [index, looker] of lookers.entries()) {
          const finding = findings[index];
          if (finding) looker.found(finding);
        }
      } catch (error) {
        // A poll looks again within a second or so.
        context.log.warn({ err: error }, "Agents could not be looked after");
      }
    }
    isLooking = false;
  }

  return {
    look(looker) {
      due.add(looker);
      if (!isLooking) void run();
    },
  };
}

function findAll(context: ServerContext, lookers: readonly Looker[]): Promise<Finding[]> {
  return context.database.query<Finding>(
    `select agents.connection, agents.revoked_at is not null as revoked,
            agents.draining_at is not null as draining,
            exists (select 1 from jobs
                    where jobs.queue = asked.queue and state = 'queued'
                      and not_before <= clock_timestamp()
                      and not exists (select 1 from installs where id = jobs.install_id
                                        and (paused_at is not null or recall_since is not null))
                   ) as waiting,
            (select coalesce(jsonb_agg(jsonb_build_object('id', id, 'generation', jobs.generation, 'n', n)), '[]')
             from jobs where agent_id = asked.agent_id and agent_id is not null
               and cancel_requested_at is not null) as cancels
     from unnest($1::text[], $2::text[]) with ordinality as asked (agent_id, queue, number)
     left join agents on agents.id = asked.agent_id
     order by asked.number`,
    [lookers.map((looker) => looker.agentId), lookers.map((looker) => looker.queue)],
  );
}
