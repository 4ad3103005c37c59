/**
 * One address: the server's port forwards `/v2/` to the registry's own process, byte for byte and
 * without hashing, so that pushing a gigabyte does not delay an agent's lease.
 */
import { Agent, request, type ServerResponse } from "node:http";
import { pipeline } from "node:stream";
import type { RegistryDoor } from "./http/services.ts";

const hopByHop = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
const connectionsMax = 64;

/** Forwards to the registry process at this address. */
export function createRegistryForward(registryUrl: string): RegistryDoor & { close(): void } {
  const { hostname, port } = new URL(registryUrl);
  const agent = new Agent({ keepAlive: true, maxSockets: connectionsMax });
  return {
    forward(incoming, answer) {
      const { method, url: path, headers } = incoming;
      const outgoing = request({ hostname, port, agent, method, path, headers }, (reply) => {
        const kept = Object.entries(reply.headers).filter(([name]) => !hopByHop.includes(name));
        answer.writeHead(reply.statusCode ?? 502, Object.fromEntries(kept));
        pipeline(reply, answer, () => {});
      });
      outgoing.on("error", () => refuse(answer));
      pipeline(incoming, outgoing, () => {});
    },
    async isReachable(signal) {
      // Without a token the registry refuses, which is an answer too.
      const answer = await fetch(new URL("/v2/", registryUrl), { signal }).catch(() => null);
      await answer?.body?.cancel();
      return answer !== null;
    },
    close: () => agent.destroy(),
  };
}

function refuse(answer: ServerResponse): void {
  if (answer.headersSent) {
    answer.destroy();
    return;
  }
  const message = "The registry's process does not answer. Try again in a moment.";
  answer.writeHead(503, { "content-type": "application/json", "retry-after": "1" });
  answer.end(JSON.stringify({ errors: [{ code: "UNAVAILABLE", message }] }));
}
