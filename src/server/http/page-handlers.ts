/** Pages for people, and signing in: a token is pasted once and becomes a session of this browser. */
import type { FastifyReply } from "fastify";
import { Fault } from "../../model/fault.ts";
import { createSession, revokeToken } from "../tokens.ts";
import { refuseForeignForm, sessionDays, setSessionCookie } from "./auth.ts";
import { renderDocs } from "./pages/docs.ts";
import { renderSignIn } from "./pages/sign-in.ts";
import { renderStatus } from "./pages/status.ts";
import { findUnreadiness } from "./readiness.ts";
import type { Call } from "./route.ts";
import { sendPage } from "./security-headers.ts";

type PlainCall = Call<unknown, unknown, unknown>;

/** The status page. */
export async function showStatus({ services, reply }: PlainCall): Promise<FastifyReply> {
  return sendPage(services.context, reply, renderStatus);
}

/** The API's documentation. */
export async function showDocs({ services, reply }: PlainCall): Promise<FastifyReply> {
  return sendPage(services.context, reply, (nonce) => renderDocs(services.describeApi(), nonce));
}

/** The sign-in page. */
export async function showSignIn({ services, reply }: PlainCall): Promise<FastifyReply> {
  return sendPage(services.context, reply, (nonce) => renderSignIn(nonce, null));
}

/** Trades a token for a session: a form gets a page, a program JSON. */
export async function signIn(call: Call<unknown, unknown, { token: string }>): Promise<unknown> {
  const { services, body, request, reply } = call;
  refuseForeignForm(request);
  const isForm = request.headers["content-type"]?.startsWith("application/x-www-form-urlencoded");
  const token = await services.tokens.find("api", body.token.trim());
  if (!token) {
    await services.refusals.record(request, "sign-in with an unknown or expired token");
    const message = "This token is not known, or has expired.";
    if (!isForm) throw new Fault("unauthorized", `Expected a living token. ${message}`);
    return sendPage(services.context, reply.code(401), (nonce) => renderSignIn(nonce, message));
  }
  setSessionCookie(services, reply, await createSession(services.context, token, sessionDays));
  return isForm ? reply.redirect("/", 303) : {};
}

/** Ends the session of this browser. */
export async function signOut({ services, identity, actor, reply }: PlainCall): Promise<unknown> {
  if (identity?.kind === "session") {
    await revokeToken(services.context, actor, identity.id);
    services.tokens.forget(identity.id);
  }
  setSessionCookie(services, reply, null);
  return reply.redirect("/sign-in", 303);
}

/** The process is up. */
export async function answerHealth(): Promise<{ status: string; reason: null }> {
  return { status: "ok", reason: null };
}

/** The server can serve. */
export async function answerReadiness({ services, reply }: PlainCall) {
  const reason = await findUnreadiness(services);
  if (reason !== null) reply.code(503);
  return { status: reason === null ? "ok" : "unavailable", reason };
}

/** Numbers for Prometheus. */
export async function answerMetrics({ services, reply }: PlainCall): Promise<FastifyReply> {
  return reply.type(services.metrics.contentType).send(await services.metrics.scrape());
}

/** What people watch, as it changes. */
export async function sendLive({ services, reply, signal }: PlainCall): Promise<FastifyReply> {
  return reply.type("text/event-stream").send(services.live.open(signal));
}
