/**
 * Headers that keep browsers from being used against the server. Pages run only the styles and scripts
 * that carry this answer's nonce; nothing is loaded from anywhere else, nothing may frame a page.
 */
import type { FastifyReply } from "fastify";
import type { ServerContext } from "../context.ts";

/** For every answer; a page then loosens the policy for its own nonce. */
export function setSecurityHeaders(reply: FastifyReply): void {
  reply.headers({
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
  });
}

/** Sends a page whose styles and scripts carry a nonce of their own. */
export async function sendPage(
  context: ServerContext,
  reply: FastifyReply,
  render: (nonce: string) => Promise<string>,
): Promise<FastifyReply> {
  const nonce = Buffer.from(context.random(16)).toString("base64");
  const policy = [
    "default-src 'none'",
    `style-src 'nonce-${nonce}'`,
    `script-src 'nonce-${nonce}'`,
    "connect-src 'self'",
    "img-src data:",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ];
  return reply
    .header("content-security-policy", policy.join("; "))
    .type("text/html; charset=utf-8")
    .send(await render(nonce));
}
