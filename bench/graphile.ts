/** The baseline of throughput: graphile-worker over the same PostgreSQL, in its fastest documented form. */
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { answer, clockMs } from "./exchange.ts";

/** Batches of added jobs, a local queue, batched completion: what its own page on performance names. */
export const graphileSettings = {
  addJobsBatch: 500,
  concurrentJobs: 24,
  maxPoolSize: 16,
  localQueueSize: 500,
  completeJobBatchDelayMs: 0,
  failJobBatchDelayMs: 0,
};

const silent = new Logger(() => () => {});

/** Adds all jobs, then runs them; both count, as both count for ours. */
async function measure({ databaseUrl, jobs }: { databaseUrl: string; jobs: number }) {
  const settings = graphileSettings;
  const pool = new pg.Pool({ connectionString: databaseUrl, max: settings.maxPoolSize });
  pool.on("error", () => {});
  pool.on("connect", (client) => client.on("error", () => {}));
  const utils = await makeWorkerUtils({ pgPool: pool, logger: silent });
  await utils.migrate();
  const done = Promise.withResolvers<void>();
  let count = 0;
  const begin = clockMs();
  const runner = await run({
    pgPool: pool,
    logger: silent,
    noHandleSignals: true,
    taskList: {
      noop() {
        if (++count === jobs) done.resolve();
      },
    },
    preset: {
      worker: {
        concurrentJobs: settings.concurrentJobs,
        maxPoolSize: settings.maxPoolSize,
        localQueue: { size: settings.localQueueSize },
        completeJobBatchDelay: settings.completeJobBatchDelayMs,
        failJobBatchDelay: settings.failJobBatchDelayMs,
      },
    },
  });
  for (let added = 0; added < jobs; added += settings.addJobsBatch) {
    const size = Math.min(settings.addJobsBatch, jobs - added);
    await utils.addJobs(
      Array.from({ length: size }, (_, index) => ({
        identifier: "noop",
        payload: { number: added + index },
      })),
    );
  }
  await done.promise;
  await untilEmpty(pool);
  const ms = clockMs() - begin;
  await runner.stop();
  await utils.release();
  await pool.end();
  return { ms };
}

/** A finished job is a removed row. */
async function untilEmpty(pool: pg.Pool): Promise<void> {
  for (;;) {
    const { rows } = await pool.query("select 1 from graphile_worker._private_jobs limit 1");
    if (rows.length === 0) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const table = { measure };
export type Graphile = typeof table;

if (process.send) answer(table);
