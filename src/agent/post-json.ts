/** One request of JSON over the agent's own way to the server; redirects are answers like any other. */
import { type IncomingMessage, request } from "node:http";
import { describeError, Fault } from "../model/fault.ts";
import { isSecure } from "./proxy-choice.ts";
import type { Route } from "./route.ts";

const requestTimeoutMs = 10_000;
const answerBytesMax = 256 * 1024;

/** Posts and reads the answer, null where it is no JSON; a `Fault` with `unavailable` when there is none. */
export async function postJson(
  route: Route,
  url: URL,
  options: { authorization: string; body: unknown; signal: AbortSignal },
): Promise<{ status: number; body: unknown }> {
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(requestTimeoutMs)]);
  try {
    const socket = await route.open(url, signal);
    try {
      const text = JSON.stringify(options.body);
      // TLS is spoken below already, so this is plain HTTP, whatever the address says.
      const posted = request({
        createConnection: () => socket,
        defaultPort: isSecure(url) ? 443 : 80,
        host: url.hostname,
        port: url.port,
        path: url.pathname,
        method: "POST",
        headers: {
          authorization: options.authorization,
          "content-type": "application/json",
          "content-length": Buffer.byteLength(text),
          connection: "close",
        },
        signal,
      });
      posted.end(text);
      const response = await answerTo(posted);
      return { status: response.statusCode ?? 0, body: await readJson(response) };
    } finally {
      socket.destroy();
    }
  } catch (error) {
    options.signal.throwIfAborted();
    if (error instanceof Fault) throw error;
    const reason = `Expected an answer from ${url.origin}, got: ${describeError(error)}.`;
    throw new Fault("unavailable", reason, { cause: error });
  }
}

function answerTo(posted: ReturnType<typeof request>): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    posted.once("response", resolve);
    posted.on("error", reject);
  });
}

async function readJson(response: IncomingMessage): Promise<unknown> {
  let text = "";
  response.setEncoding("utf8");
  for await (const chunk of response) {
    text += chunk;
    if (text.length > answerBytesMax) throw new Error("an answer that is too large");
  }
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
