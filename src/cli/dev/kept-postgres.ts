/** Our own PostgreSQL, kept running: started again when it dies, under the same address where possible. */
import { setTimeout as delay } from "node:timers/promises";
import { describeError } from "../../model/fault.ts";
import { type Postgres, startPostgres } from "../../postgres/postgres.ts";
import { countDeaths, pauseAfter } from "./kept-program.ts";

export interface KeptPostgres {
  readonly url: string;
  stop(): Promise<void>;
}

/** Starts it; `onMoved` hears when it came back under another address. */
export async function keepPostgres(
  dataDirectory: string,
  tell: (message: string) => void,
  onMoved: (url: string) => void,
): Promise<KeptPostgres> {
  const stopping = new AbortController();
  let current: Postgres | null = await startPostgres({ dataDirectory, log: tell });
  const { url } = current;
  const kept = (async () => {
    for (let deaths = 0, knownUrl = url; ; ) {
      const startedAt = performance.now();
      const ended = await current?.exited;
      if (stopping.signal.aborted) return;
      if (ended)
        tell(
          `PostgreSQL ended (${ended.signal ?? `exit code ${ended.exitCode}`}); it is started again.`,
        );
      // Also where it died by itself: what it left behind is cleared away.
      await current?.stop().catch(() => {});
      current = null;
      deaths = countDeaths(deaths, performance.now() - startedAt);
      await delay(pauseAfter(deaths), undefined, { signal: stopping.signal }).catch(() => {});
      if (stopping.signal.aborted) return;
      try {
        current = await startPostgres({ dataDirectory, log: tell });
        if (current.url !== knownUrl) onMoved(current.url);
        knownUrl = current.url;
      } catch (error) {
        tell(`PostgreSQL could not be started: ${describeError(error)}`);
      }
    }
  })();
  return {
    url,
    async stop() {
      stopping.abort();
      await current?.stop();
      await kept;
    },
  };
}
