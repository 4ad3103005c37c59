/**
 * Who calls. Programs send `Authorization: Bearer lft_…`; a browser sends the cookie it was given for
 * such a token, and with a cookie a change is taken only from our own pages.
 *
 * Invariant: a route whose row says `token` runs with a living token or not at all.
 */
import type { FastifyReply, FastifyRequest } from "fastify";
import { Fault } from "../../model/fault.ts";
import type { Token } from "../tokens.ts";
import type { HttpServices } from "./services.ts";

export const sessionCookie = "landfall_session";
export const sessionDays = 7;

const safeMethods = ["GET", "HEAD", "OPTIONS"];

/** The token that a request comes with; otherwise a `Fault`, and an event if one was refused. */
export async function authenticate(
  services: HttpServices,
  request: FastifyRequest,
): Promise<Token> {
  if (request.headers.authorization !== undefined) return requireBearer(services, request);
  const secret = request.cookies[sessionCookie];
  if (secret === undefined) {
    throw new Fault(
      "unauthorized",
      "Expected a token in `Authorization: Bearer …`, got none. In a browser, sign in at /sign-in.",
    );
  }
  const session = await services.tokens.find("session", secret);
  if (!session) {
    await services.refusals.record(request, "session unknown or expired");
    throw new Fault(
      "unauthorized",
      "Expected a living session, got none. Sign in again at /sign-in.",
    );
  }
  if (!safeMethods.includes(request.method) && originOf(request) !== "same") {
    await services.refusals.record(request, "request from another site", `token:${session.id}`);
    throw new Fault(
      "forbidden",
      "Expected a change from a page of this server, got one from elsewhere. Use an API token instead of a cookie.",
    );
  }
  return session;
}

/** What follows the scheme in the `Authorization` header, or null. */
export function readAuthorization(request: FastifyRequest, scheme: string): string | null {
  const [, given = "", value = ""] =
    /^(\S+) +(\S+) *$/.exec(request.headers.authorization ?? "") ?? [];
  return given.toLowerCase() === scheme.toLowerCase() ? value : null;
}

/** Refuses a form that another site's page has sent; programs send neither header. */
export function refuseForeignForm(request: FastifyRequest): void {
  if (originOf(request) !== "foreign") return;
  throw new Fault(
    "forbidden",
    "Expected a form of this server's own pages. Open /sign-in and try again.",
  );
}

/** Gives the browser its session, or takes it away. */
export function setSessionCookie(
  services: HttpServices,
  reply: FastifyReply,
  session: { secret: string; expiresAt: Date } | null,
): void {
  const secure = services.context.publicUrl.startsWith("https:");
  const options = { path: "/", httpOnly: true, sameSite: "strict", secure } as const;
  if (session)
    reply.setCookie(sessionCookie, session.secret, { ...options, expires: session.expiresAt });
  else reply.clearCookie(sessionCookie, options);
}

async function requireBearer(services: HttpServices, request: FastifyRequest): Promise<Token> {
  const secret = readAuthorization(request, "Bearer");
  const token = secret === null ? null : await services.tokens.find("api", secret);
  if (token) return token;
  await services.refusals.record(request, "token unknown, revoked or expired");
  throw new Fault(
    "unauthorized",
    "Expected a token that is known and has not expired. Make a new one, or look for a typing error.",
  );
}

/** Where a browser says that a request comes from. */
function originOf(request: FastifyRequest): "same" | "foreign" | "unknown" {
  const site = request.headers["sec-fetch-site"];
  if (site !== undefined) return site === "same-origin" ? "same" : "foreign";
  const { origin, host } = request.headers;
  if (origin === undefined) return "unknown";
  return URL.canParse(origin) && new URL(origin).host === host ? "same" : "foreign";
}
