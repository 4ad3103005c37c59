/**
 * What a row of the route table says: who may call it, what it takes, what it answers.
 *
 * Invariant: a handler sees only what its schemas have parsed, and runs only for a caller whom the
 * row admits; both are seen to in one place, `http.ts`, for every row alike.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { z } from "zod";
import type { Token } from "../tokens.ts";
import type { HttpServices } from "./services.ts";

/** Who may call a route. Only `token` gives an identity. */
export type Caller =
  | "anyone"
  | "token" // an API token, or the session of a browser
  | "enrolment-code" // `Authorization: Enrolment <code>`, judged by the handler
  | "job-token"; // `Authorization: Bearer <job token>`, judged by the handler

export interface Call<Params, Query, Body> {
  readonly services: HttpServices;
  /** Null where the route asks for none. */
  readonly identity: Token | null;
  /** In whose name something is done. */
  readonly actor: string;
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  /** Aborted when the caller has gone away. */
  readonly signal: AbortSignal;
}

export interface Route {
  readonly method: "GET" | "POST" | "DELETE";
  /** With `:name` for parameters. */
  readonly path: string;
  readonly caller: Caller;
  readonly group: string;
  readonly summary: string;
  readonly params: z.ZodType | null;
  readonly query: z.ZodType | null;
  readonly body: z.ZodType | null;
  /** `stream` hands the body over unread; forms are read where a page has one. */
  readonly bodyKind: "json" | "form" | "stream";
  readonly bodyBytesMax: number;
  readonly answer: z.ZodType | null;
  readonly answerType: string;
  /** A page for people: whoever is not signed in is led to the sign-in page. */
  readonly page: boolean;
  handle(call: Call<unknown, unknown, unknown>): Promise<unknown>;
}

const bodyBytesDefault = 262_144;

type Needed = "method" | "path" | "caller" | "group" | "summary";

/** A row of the table: what it leaves out is none, JSON, or the default limit. */
export function defineRoute<Params = unknown, Query = unknown, Body = unknown>(
  row: Pick<Route, Needed> &
    Partial<Omit<Route, Needed | "handle" | "params" | "query" | "body">> & {
      readonly params?: z.ZodType<Params>;
      readonly query?: z.ZodType<Query>;
      readonly body?: z.ZodType<Body>;
      handle(call: Call<Params, Query, Body>): Promise<unknown>;
    },
): Route {
  const { params = null, query = null, body = null, handle, ...rest } = row;
  return {
    bodyKind: "json",
    bodyBytesMax: bodyBytesDefault,
    answer: null,
    answerType: "application/json",
    page: false,
    ...rest,
    params,
    query,
    body,
    // The schemas above parse exactly what the handler takes.
    handle: (call) => handle(call as Call<Params, Query, Body>),
  };
}
