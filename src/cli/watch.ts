/**
 * Watching what the server tells live, across its restarts: the connection may break and come back;
 * whoever watches sees views only.
 */
import { setTimeout as delay } from "node:timers/promises";
import { isFault } from "../model/fault.ts";
import type { LiveView } from "../protocol/api.ts";
import type { ApiClient } from "./api-client.ts";

const pauseMs = 300;

/** Views until the signal fires; gives up after so many tries in a row that reached nothing. */
export async function* watchLive(
  client: ApiClient,
  options: { signal?: AbortSignal; triesMax: number },
): AsyncGenerator<LiveView> {
  for (let tries = 0; !options.signal?.aborted; ) {
    try {
      for await (const view of client.live(options.signal)) {
        tries = 0;
        yield view;
      }
    } catch (error) {
      if (options.signal?.aborted) return;
      if (!isFault(error, "unavailable") || ++tries >= options.triesMax) throw error;
    }
    await delay(pauseMs, undefined, options.signal ? { signal: options.signal } : {}).catch(
      () => {},
    );
  }
}
