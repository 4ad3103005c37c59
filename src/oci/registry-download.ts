/** Downloads that go on where they broke off, a bounded number of times, by asking for a range. */
import type { IncomingMessage } from "node:http";
import { describeError } from "../model/fault.ts";
import type { Descriptor } from "./content.ts";
import { type Transport, unreachable } from "./http-transport.ts";
import { imageManifestTypes } from "./image-manifest.ts";
import { requireStatus } from "./registry-answer.ts";

const resumesMax = 8;

/** The bytes at this path as the registry gives them, not verified yet. */
export async function* download(
  transport: Transport,
  path: string,
  content: Descriptor,
  place: string,
): AsyncGenerator<Uint8Array> {
  let received = 0;
  for (let resumes = 0; ; resumes++) {
    const response = await request(transport, path, received, content, place);
    // A registry that does not know ranges starts from the first byte again.
    let ahead = response.statusCode === 206 ? 0 : received;
    try {
      for await (const piece of response as AsyncIterable<Buffer>) {
        const fresh = ahead >= piece.length ? null : piece.subarray(ahead);
        ahead = Math.max(0, ahead - piece.length);
        if (!fresh) continue;
        received += fresh.length;
        yield fresh;
      }
      return;
    } catch (error) {
      if (received >= content.size) return;
      if (resumes < resumesMax) continue;
      const reason = describeError(error);
      throw unreachable(transport.origin, `give ${content.digest}`, resumes + 1, reason);
    }
  }
}

function request(
  transport: Transport,
  path: string,
  received: number,
  content: Descriptor,
  place: string,
): Promise<IncomingMessage> {
  const accept = [...imageManifestTypes, "application/octet-stream"].join(", ");
  const headers = { accept, ...(received > 0 ? { range: `bytes=${received}-` } : {}) };
  return transport.retry(`give ${content.digest}`, async () => {
    const response = await transport.send({ method: "GET", path, headers });
    const expected = received > 0 ? [200, 206] : [200];
    await requireStatus(response, expected, place, "give content", content.digest);
    return response;
  });
}
