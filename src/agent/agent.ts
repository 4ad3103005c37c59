/**
 * The agent: asks and launches, and does nothing else. It keeps one outbound connection, gives what
 * comes over it to its jobs, and comes back with jitter when it is cut.
 *
 *   connecting ──welcome──> connected ──cut──> waiting ──jitter──> connecting
 *                               │ signed(superseded)
 *                               v
 *                           superseded: launches nothing more, leaves its executors, ends
 */
import { setTimeout as sleep } from "node:timers/promises";
import { fullJitterMs } from "./backoff.ts";
import { type ConnectionHandlers, runConnection } from "./connection.ts";
import { type Identity, writeIdentity } from "./identity.ts";
import { createJobs, type Jobs, type JobsOptions } from "./jobs.ts";
import type { Link } from "./running-job.ts";

const retryCapMs = 15_000;
/** After a refusal a person must act: there is no point in asking often. */
const refusedRetryMs = 60_000;
const drainMs = 10_000;

export interface AgentOptions extends Omit<JobsOptions, "link" | "changed"> {
  readonly serverUrl: string;
  readonly identity: Identity;
  readonly random: () => number;
}

export interface Agent {
  /** Why it ended. */
  readonly ended: Promise<"stopped" | "superseded">;
  /** Closes the connection and ends; executors go on, for the next agent to find. */
  leave(): void;
  /** Launches nothing more, gives running executors ten seconds, ends them, then ends. */
  drain(): void;
}

/** Starts the agent over its journal and folder. */
export async function startAgent(options: AgentOptions): Promise<Agent> {
  const { logger } = options;
  const stopping = new AbortController();
  let link: Link | null = null;
  let renewal: NodeJS.Timeout | null = null;
  let { identity } = options;

  /** A slot became free: tell it at once, so that the next job need not wait for the heartbeat. */
  function changed(): void {
    renewal ??= setTimeout(() => {
      renewal = null;
      link?.send({ type: "renew", ...jobs.leases() });
    }, 0);
  }

  const jobs: Jobs = createJobs({ ...options, link: () => link, changed });
  await jobs.restore();
  const handlers: ConnectionHandlers = {
    ...connectionHandlers(options, jobs),
    async keysetSeen(keysetNumber) {
      if (keysetNumber <= identity.keysetNumber) return;
      identity = { ...identity, keysetNumber };
      await writeIdentity(options.directory, identity);
    },
    welcomed(next, frame) {
      link = next;
      logger.info("connected", { generation: frame.generation, keep: frame.keep.length });
      jobs.welcome(frame);
    },
  };

  async function stayConnected(): Promise<"stopped" | "superseded"> {
    for (let attempt = 0; !stopping.signal.aborted; attempt++) {
      const { signal } = stopping;
      const end = await runConnection({ ...options, identity, handlers, signal });
      link = null;
      jobs.disconnected();
      if (signal.aborted) break;
      if (end.code === "superseded") {
        logger.error("another agent has taken this one's place; it ends here", {
          reason: end.reason,
        });
        return "superseded";
      }
      if (end.welcomed) attempt = 0;
      const refused = end.code === "refused";
      const waitMs = refused
        ? refusedRetryMs * (0.5 + options.random() / 2)
        : fullJitterMs(attempt, retryCapMs, options.random);
      logger[refused ? "error" : "warn"](
        refused ? "the server refuses this agent" : "not connected; trying again",
        { reason: end.reason, waitMs: Math.round(waitMs) },
      );
      await sleep(waitMs, undefined, { signal }).catch(() => {});
    }
    return "stopped";
  }

  const ended = stayConnected().then(async (reason) => {
    jobs.stopLaunching();
    await jobs.leave();
    if (renewal) clearTimeout(renewal);
    return reason;
  });
  return {
    ended,
    leave: () => stopping.abort(),
    drain() {
      jobs.stopLaunching();
      changed();
      void jobs.drain(drainMs).finally(() => stopping.abort());
    },
  };
}

function connectionHandlers(
  { journal, logger, now }: AgentOptions,
  jobs: Jobs,
): Omit<ConnectionHandlers, "keysetSeen" | "welcomed"> {
  return {
    report: jobs.report,
    leases: jobs.leases,
    async effect(frame, session, serverNowMs) {
      if (frame.type === "offer") await jobs.offer(frame, session, serverNowMs);
      if (frame.type === "cancel") jobs.cancel(frame);
      if (frame.type === "credentials") await jobs.renewCredentials(frame);
    },
    acknowledged: (frame) => jobs.acknowledge(frame, frame.acknowledged),
    refused({ code, reason }) {
      journal.recordRefusal({ code, reason, job: null }, now().toISOString());
      logger.warn("refused a frame", { code, reason });
    },
  };
}
