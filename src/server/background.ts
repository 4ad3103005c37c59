/**
 * What a server does by itself: reconciles installs that are due, wakes queues, sweeps leases. Each
 * loop is woken in process and has a slow poll as its floor, so that a lost notice costs a second at
 * most; each may run in any number of servers at once.
 */
import type { ServerContext } from "./context.ts";
import { sweepLeases } from "./jobs.ts";
import { reconcileNext } from "./reconcile-install.ts";

const pollMs = 1000;
const sweepMs = 5000;
const queuesMax = 1000;

export interface Background {
  stop(): Promise<void>;
}

/** Starts the loops. */
export function startBackground(context: ServerContext): Background {
  const loops = [
    startLoop(context, "reconcile", pollMs, async () => {
      while (await reconcileNext(context)) {}
    }),
    startLoop(context, null, pollMs, () => wakeQueues(context)),
    startLoop(context, null, sweepMs, () => sweepLeases(context)),
  ];
  return {
    async stop() {
      await Promise.all(loops.map((loop) => loop.stop()));
    },
  };
}

/** Jobs whose time to be tried again has come, or that another server has queued. */
async function wakeQueues(context: ServerContext): Promise<void> {
  const rows = await context.database.query<{ queue: string }>(
    "select distinct queue from jobs where state = 'queued' and not_before <= clock_timestamp() limit $1",
    [queuesMax],
  );
  for (const { queue } of rows) context.wake.notify(`jobs:${queue}`);
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
