/**
 * How a refusal reaches the client, also one that is still sending: a socket that is closed over
 * unread bytes is reset, and the client might never see the answer, so the rest is read first,
 * within bounds.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { RegistryRefusal } from "./registry-refusal.ts";

const drainBytesMax = 4 * 1024 * 1024;
const drainMs = 1_000;

/** Answers with a refusal in the standard's JSON form, if there is still a way to answer. */
export async function sendRefusal(
  request: IncomingMessage,
  response: ServerResponse,
  refusal: RegistryRefusal,
): Promise<void> {
  if (response.headersSent) return void response.destroy();
  const drained = await drain(request);
  const body = Buffer.from(JSON.stringify({ errors: refusal.errors }));
  response.writeHead(refusal.status, {
    ...refusal.headers,
    "content-type": "application/json",
    "content-length": body.length,
    ...(drained ? {} : { connection: "close" }),
  });
  response.end(request.method === "HEAD" ? undefined : body);
}

/** Reads what is left of a request, within bounds; false when there is more. */
function drain(request: IncomingMessage): Promise<boolean> {
  if (request.complete || request.destroyed) return Promise.resolve(true);
  return new Promise((resolve) => {
    let bytes = 0;
    const finish = (drained: boolean) => {
      clearTimeout(timer);
      request.removeListener("data", count);
      if (!drained) request.pause();
      resolve(drained);
    };
    const count = (piece: Buffer) => {
      bytes += piece.length;
      if (bytes > drainBytesMax) finish(false);
    };
    const timer = setTimeout(() => finish(false), drainMs);
    request.once("end", () => finish(true));
    request.once("close", () => finish(true));
    request.on("error", () => undefined);
    request.on("data", count);
    request.resume();
  });
}
