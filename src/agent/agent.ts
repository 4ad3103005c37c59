/**
 * The agent: asks and launches, and does nothing else. It keeps one outbound connection, gives what
 * comes over it to its jobs, and comes back with jitter when it is cut.
 *
 *   connecting ──welcome──> connected ──cut──> waiting ──jitter──> connecting
 *     ^   │ refused             │ signed(superseded)
 *     │   v                     v
 *    waits for a code:      superseded: launches nothing more, leaves its executors, ends;
 *    a new identity, the    started again it waits a minute at least before it connects
 *    same jobs
 */
import { setTimeout as sleep } from "node:timers/promises";
import { reconnectMs } from "./backoff.ts";
import { type ConnectionEnd, type ConnectionHandlers, runConnection } from "./connection.ts";
import { type EnrolOptions, enrolAnew, hasCode } from "./enrol.ts";
import { type Identity, writeIdentity } from "./identity.ts";
import { createJobs, type Jobs, type JobsOptions } from "./jobs.ts";
import type { Link } from "./running-job.ts";
import { recordSupersession, supersessionWaitMs } from "./supersession.ts";

/** Only a connection that lasted this long was a good one: after it the waits begin from the first. */
const steadyMs = 10_000;
/** How often a refused agent looks for a new code. */
const codePollMs = 1000;
const drainMs = 10_000;

export interface AgentOptions
  extends Omit<JobsOptions, "link" | "changed">,
    Pick<EnrolOptions, "serverUrl" | "route" | "enrolmentFile" | "random"> {
  readonly identity: Identity;
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
  const { logger, clock } = options;
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

  const { signal } = stopping;
  const pause = (ms: number) => sleep(ms, undefined, { signal }).catch(() => {});

  /** Trades a code that a person has left for this agent, if any. */
  async function takeNewIdentity(): Promise<boolean> {
    const next = await enrolAnew({ ...options, sleep: pause, signal }, identity).catch((error) => {
      if (signal.aborted) return null;
      throw error;
    });
    if (next) identity = next;
    return next !== null;
  }

  async function waitAfter(end: ConnectionEnd, attempt: number): Promise<void> {
    const refused = end.code === "refused";
    const code = end.code === "superseded" ? "closed" : end.code;
    const waitMs = reconnectMs({ ...end, code }, attempt, options.random);
    logger[refused ? "error" : "warn"](
      refused ? "the server refuses this agent" : "not connected; trying again",
      { reason: end.reason, waitMs: Math.round(waitMs) },
    );
    if (!refused) return pause(waitMs);
    const deadline = clock() + waitMs;
    for (let tried = false; clock() < deadline && !signal.aborted; ) {
      if (!tried && hasCode(options)) {
        tried = true; // a code that is not taken is tried again only after the next refusal
        if (await takeNewIdentity()) return;
      }
      await pause(Math.min(codePollMs, deadline - clock()));
    }
  }

  async function stayConnected(): Promise<"stopped" | "superseded"> {
    await takeNewIdentity();
    const { directory, random } = options;
    const restMs = await supersessionWaitMs(directory, identity.agentId, clock(), random);
    if (restMs > 0) {
      logger.warn("another agent took this one's place; waiting before it connects", { restMs });
      await pause(restMs);
    }
    for (let attempt = 0; !signal.aborted; attempt++) {
      const startedMs = clock();
      const end = await runConnection({ ...options, identity, handlers, signal });
      link = null;
      jobs.disconnected();
      if (signal.aborted) break;
      if (end.code === "superseded") {
        jobs.stopLaunching();
        await recordSupersession(directory, identity.agentId, clock());
        logger.error("another agent has taken this one's place; it ends here", {
          reason: end.reason,
        });
        return "superseded";
      }
      if (end.welcomed && clock() - startedMs >= steadyMs) attempt = 0;
      await waitAfter(end, attempt);
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
  { journal, logger, now, slots }: AgentOptions,
  jobs: Jobs,
): Omit<ConnectionHandlers, "keysetSeen" | "welcomed"> {
  return {
    report: () => ({ ...jobs.report(), slots }),
    leases: jobs.leases,
    async effect(frame, session, serverNowMs) {
      if (frame.type === "offer") await jobs.offer(frame, session, serverNowMs);
      if (frame.type === "cancel") jobs.cancel(frame);
      if (frame.type === "credentials") await jobs.renewCredentials(frame);
      if (frame.type === "recall") void jobs.recall();
    },
    acknowledged: jobs.acknowledge,
    refused({ code, reason }) {
      journal.recordRefusal({ code, reason, job: null }, now().toISOString());
      logger.warn("refused a frame", { code, reason });
    },
  };
}
