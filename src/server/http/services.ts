/** What the handlers share: made once per HTTP server, closed with it. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { ServerContext } from "../context.ts";
import { createTokenFinder, type TokenFinder } from "../tokens.ts";
import { createLiveFeed, type LiveFeed } from "./live-feed.ts";
import { createMetrics, type Metrics } from "./metrics.ts";
import { createRefusals, type Refusals } from "./refusals.ts";

/** The vendor's registry, which runs in a process of its own. */
export interface RegistryDoor {
  /** Passes a request under `/v2/` on, byte for byte. */
  forward(request: IncomingMessage, response: ServerResponse): void;
  /** Whether it answers. */
  isReachable(signal: AbortSignal): Promise<boolean>;
}

export interface HttpOptions {
  readonly registry?: RegistryDoor;
  /** Whether the database has this version's tables; by default, whether any migration was applied. */
  readonly isMigrated?: () => Promise<boolean>;
}

export interface HttpServices {
  readonly context: ServerContext;
  readonly options: HttpOptions;
  readonly tokens: TokenFinder;
  readonly refusals: Refusals;
  readonly live: LiveFeed;
  readonly metrics: Metrics;
  /** The API described, for `/openapi.json` and `/docs`. */
  readonly describeApi: () => object;
}

/** Makes them all. */
export function createServices(
  context: ServerContext,
  options: HttpOptions,
  describeApi: () => object,
): HttpServices & { close(): void } {
  const live = createLiveFeed(context);
  const metrics = createMetrics(context);
  return {
    context,
    options,
    tokens: createTokenFinder(context),
    refusals: createRefusals(context),
    live,
    metrics,
    describeApi,
    close() {
      live.close();
      metrics.close();
    },
  };
}
