/**
 * The port of an install's own registry: kept for the install's life, so that its address never changes.
 *
 * It is picked below the range from which systems take ports for outgoing connections (and apart from the one
 * that the supervisor picks from), so that none of those takes it while the registry is down.
 */
import { randomInt } from "node:crypto";
import { createServer } from "node:net";
import { Fault } from "../../model/fault.ts";

const portMin = 15_000;
const portMax = 19_999;
const attemptsMax = 200;

/** A port that can be bound now. */
export async function pickRegistryPort(): Promise<number> {
  for (let attempt = 0; attempt < attemptsMax; attempt++) {
    const port = randomInt(portMin, portMax + 1);
    if (await canBind(port)) return port;
  }
  throw new Fault(
    "unavailable",
    `Expected a free port from ${portMin} to ${portMax} for the install's registry, got none in ${attemptsMax} attempts.`,
  );
}

function canBind(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
