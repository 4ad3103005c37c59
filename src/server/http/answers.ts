/**
 * The one place where a refusal becomes an HTTP status. Anything that is not a `Fault` is a bug: it is
 * logged whole, and the caller is told no more than that.
 */
import { STATUS_CODES } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { z } from "zod";
import { Fault, type FaultCode } from "../../model/fault.ts";
import type { ServerContext } from "../context.ts";

const statuses = {
  invalid: 400,
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  conflict: 409,
  too_large: 413,
  unavailable: 503,
} as const satisfies Record<FaultCode, number>;

const problemsShown = 50;

/** Answers whatever a handler threw. */
export function answerError(
  context: ServerContext,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const fault = error instanceof Fault ? error : faultOfFramework(error);
  if (fault) {
    if (fault.code === "unauthorized") reply.header("www-authenticate", "Bearer");
    const { code, message, problems } = fault;
    return reply.code(statuses[code]).send({ error: { code, message, problems } });
  }
  const incident = Buffer.from(context.random(6)).toString("hex");
  context.log.error(
    { err: error, incident, method: request.method, route: request.routeOptions.url },
    "A request failed",
  );
  const message = `Internal error. The server's log tells more under incident ${incident}.`;
  return reply.code(500).send({ error: { code: "internal", message, problems: [] } });
}

/** Parses what came in; all that is wrong with it is told at once. */
export function parseInput<Schema extends z.ZodType>(
  schema: Schema,
  what: "body" | "query" | "path",
  value: unknown,
): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.slice(0, problemsShown).map(({ path, message }) => ({
    severity: "error" as const,
    message: `${[what, ...path.map(String)].join(".")}: ${message}`,
    position: null,
  }));
  const details = problems.map(({ message }) => message).join("; ");
  throw new Fault(
    "invalid",
    `Expected a ${what} of the documented form, got: ${details}. See /docs.`,
    {
      problems,
    },
  );
}

/** What the framework refuses before a handler runs: bad JSON, a body too large, an unknown type. */
function faultOfFramework(error: unknown): Fault | null {
  if (!(error instanceof Error)) return null;
  const { statusCode } = error as Error & { statusCode?: unknown };
  if (typeof statusCode !== "number" || statusCode < 400 || statusCode >= 500) return null;
  const code = statusCode === 413 ? "too_large" : statusCode === 404 ? "not_found" : "invalid";
  return new Fault(code, `${STATUS_CODES[statusCode] ?? "Bad request"}: ${error.message}.`);
}
