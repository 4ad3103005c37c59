/**
 * Refusals are told: a wrong token or sign-in becomes an event. A flood cannot fill the table: beyond
 * an allowance refusals are only counted, and the count is part of the next event.
 */
import type { IncomingMessage } from "node:http";
import type { FastifyRequest } from "fastify";
import { Fault } from "../../model/fault.ts";
import type { ServerContext } from "../context.ts";
import { recordEvent } from "../event-queue.ts";

export interface Refusals {
  /** Tells of a refused request. The reason holds no secret. */
  record(request: FastifyRequest, reason: string, actor?: string): Promise<void>;
  /** Tells of a request that the registry's own process has refused. */
  recordForwarded(request: IncomingMessage): Promise<void>;
  /** Throws a `Fault` when this caller's enrolments were refused too often lately. */
  admitEnrolment(request: FastifyRequest): void;
  /** Counts a refused enrolment against this caller. */
  countEnrolment(request: FastifyRequest): void;
}

const eventsPerMinute = 20;
const enrolmentsPerMinute = 30;
const callersMax = 10_000;

/** Refusals of one server process. */
export function createRefusals(context: ServerContext): Refusals {
  const events = createAllowance(eventsPerMinute);
  const enrolments = new Map<string, Allowance>();
  let suppressed = 0;

  async function tell(refusal: object, actor: string): Promise<void> {
    if (!events.take(context.now())) {
      suppressed++;
      return;
    }
    const data = { ...refusal, ...(suppressed > 0 ? { suppressed } : {}) };
    suppressed = 0;
    try {
      await recordEvent(context.database, { kind: "request.refused", actor, data });
    } catch (error) {
      context.log.error({ err: error, refusal: data }, "A refusal could not be recorded");
    }
  }

  return {
    record({ method, routeOptions, ip: from }, reason, actor = "anonymous") {
      // The pattern, never the address itself: people paste secrets into addresses.
      return tell({ method, route: routeOptions.url ?? "", reason, from }, actor);
    },
    recordForwarded({ method, socket }) {
      const reason = "the registry does not know the token, or it does not open this";
      return tell({ method, route: "/v2/", reason, from: socket.remoteAddress }, "anonymous");
    },
    admitEnrolment(request) {
      if (enrolments.get(request.ip)?.isEmpty(context.now())) {
        throw new Fault(
          "unavailable",
          "Expected an enrolment code, but too many from this address were refused. Wait a minute, then try again.",
        );
      }
    },
    countEnrolment(request) {
      if (enrolments.size >= callersMax) enrolments.clear();
      const allowance = enrolments.get(request.ip) ?? createAllowance(enrolmentsPerMinute);
      enrolments.set(request.ip, allowance);
      allowance.take(context.now());
    },
  };
}

interface Allowance {
  take(now: Date): boolean;
  isEmpty(now: Date): boolean;
}

/** So many a minute, and as many at once. */
function createAllowance(perMinute: number): Allowance {
  let left = perMinute;
  let filledAt: number | null = null;
  function refill(now: Date) {
    const elapsed = Math.max(0, now.getTime() - (filledAt ?? now.getTime()));
    left = Math.min(perMinute, left + (elapsed / 60_000) * perMinute);
    filledAt = now.getTime();
  }
  return {
    take(now) {
      refill(now);
      if (left < 1) return false;
      left -= 1;
      return true;
    },
    isEmpty(now) {
      refill(now);
      return left < 1;
    },
  };
}
