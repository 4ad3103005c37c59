/** Whether the server can have its port, asked before anything is changed. */
import { once } from "node:events";
import { createServer } from "node:net";
import { Fault } from "../../model/fault.ts";
import { errorCode } from "../../model/file-fault.ts";

/** The port itself, or a free one for 0; a `Fault` when somebody else has it. */
export async function requireFreePort(port: number): Promise<number> {
  const probe = createServer();
  try {
    probe.listen({ port, host: "127.0.0.1", exclusive: true });
    await once(probe, "listening");
    const address = probe.address();
    return typeof address === "object" && address ? address.port : port;
  } catch (error) {
    const code = errorCode(error);
    if (code === "EADDRINUSE") {
      throw new Fault(
        "conflict",
        `Expected port ${port} to be free for the server, but another program listens there (perhaps another \`landfall dev\`). Stop it, or choose another port with \`--port N\`. Nothing was changed.`,
      );
    }
    if (code === "EACCES") {
      throw new Fault(
        "invalid",
        `Expected a port that you may use, but ${port} is not permitted. Choose one above 1023 with \`--port N\`.`,
      );
    }
    throw error;
  } finally {
    await new Promise((closed) => probe.close(closed));
  }
}
