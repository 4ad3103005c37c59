/**
 * What a server does by itself: reconciles installs that are due, wakes queues, sweeps leases. Each
 * loop is woken by notices and has a slow poll as its floor, so that a lost notice costs a second at
 * most; each may run in any number of servers at once.
 */
import type { ServerContext } from "./context.ts";
import { sweepLeases } from "./jobs.ts";
import { reconcileNext } from "./reconcile-install.ts";
import { beatMs, beatServer, sweepServers } from "./servers.ts";

const defaultPollMs = 1000;
const sweepMs = 5000;
const queuesMax = 1000;

export interface Background {
  stop(): Promise<void>;
}

/** Starts the loops. `pollMs`: how late a lost notice is made good. */
export function startBackground(
  context: ServerContext,
  { pollMs = defaultPollMs }: { pollMs?: number } = {},
): Background {
  let lastQueue = "";
  const loops = [
    startLoop(context, "reconcile", pollMs, async () => {
      while (await reconcileNext(context)) {}
    }),
    startLoop(context, null, pollMs, async () => {
      lastQueue = await wakeQueues(context, lastQueue);
      await wakeCancels(context);
    }),
    startLoop(context, null, sweepMs, () => sweepLeases(context)),
    startLoop(context, null, beatMs, async () => {
      await beatServer(context.database, context.serverId);
      await sweepServers(context);
    }),
  ];
  return {
    async stop() {
      await Promise.all(loops.map((loop) => loop.stop()));
    },
  };
}

/**
 * Jobs whose time to be tried again has come, or of which a notice was lost. Queues are looked at in
 * pages, each round after the last one, and one index probe each, so that no number of queues of absent
 * agents keeps others from their turn. Returns where the next round begins.
 */
async function wakeQueues(context: ServerContext, after: string): Promise<string> {
  const rows = await context.database.query<{ queue: string; due: boolean }>(
    `with recursive queues as (
       (select queue, 1 as number from jobs where state = 'queued' and queue > $1 order by queue limit 1)
       union all
       select (select queue from jobs where state = 'queued' and queue > queues.queue
               order by queue limit 1), number + 1
       from queues where queue is not null and number < $2)
     select queue, exists (
       select 1 from jobs where jobs.queue = queues.queue and state = 'queued'
         and not_before <= clock_timestamp()) as due
     from queues where queue is not null`,
    [after, queuesMax],
  );
  // Each server polls for its own agents: no need to tell the others.
  for (const { queue, due } of rows) if (due) context.wake.ring(`jobs:${queue}`);
  return rows.length < queuesMax ? "" : (rows.at(-1)?.queue ?? "");
}

/** Cancels that their agents may not have been told of. */
async function wakeCancels(context: ServerContext): Promise<void> {
  const rows = await context.database.query<{ agent_id: string }>(
    `select distinct agent_id from jobs
     where agent_id is not null and cancel_requested_at is not null limit $1`,
    [queuesMax],
  );
  for (const row of rows) context.wake.ring(`agent:${row.agent_id}`);
}

/** Runs `step` whenever it is woken, and every `everyMs` besides; never twice at once. */
function startLoop(
  context: ServerContext,
  topic: "reconcile" | null,
  everyMs: number,
  step: () => Promise<void>,
): Background {
  let isStopped = false;
  let isDue = true;
  let running: Promise<void> | null = null;

  async function run(): Promise<void> {
    while (isDue && !isStopped) {
      isDue = false;
      await step().catch((error: unknown) => {
        if (!isStopped) context.log.error({ err: error }, "Background work failed");
      });
    }
    running = null;
  }
  function trigger(): void {
    isDue = true;
    running ??= run();
  }
  const timer = setInterval(trigger, everyMs);
  const stopListening = topic ? context.wake.listen(topic, trigger) : () => {};
  trigger();
  return {
    async stop() {
      isStopped = true;
      clearInterval(timer);
      stopListening();
      await running;
    },
  };
}
