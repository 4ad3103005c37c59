/** An agent's socket: says in words why it closes, and finds out whether anyone is at the other end. */
import { WebSocket } from "ws";
import { describeSocketError } from "./frame-check.ts";
import type { GatewayLimits } from "./limits.ts";

const closeReasonLengthMax = 120;

/** A socket that tells the agent in words why its bytes are refused, before it closes. */
export class AgentSocket extends WebSocket {
  override close(code?: number, reason?: string | Buffer): void {
    const problem = describeSocketError(code);
    if (problem && this.readyState === WebSocket.OPEN) {
      this.send(JSON.stringify({ type: "goodbye", code: "refused", reason: problem }));
    }
    super.close(code, reason);
  }

  /** Closes with a reason, cut to what a close frame holds. */
  closeFor(reason: string): void {
    this.resume(); // a paused socket would not see the other end close
    super.close(1008, reason.replaceAll(/[^ -~]/g, "?").slice(0, closeReasonLengthMax));
  }
}

export interface Liveness {
  /** Something came. */
  hear(): void;
  silentMs(now: number): number;
  /** Asks when it has been silent for a while, ends it when it stays so. */
  check(now: number): void;
}

/** Watches one socket in the time of the gateway's sweep, without a timer of its own. */
export function watchSocket(
  socket: AgentSocket,
  limits: Pick<GatewayLimits, "pingAfterMs" | "silenceMs">,
  sweepTime: () => number,
): Liveness {
  let heardAt = sweepTime();
  let isPinged = false;
  function hear(): void {
    heardAt = sweepTime();
    isPinged = false;
  }
  socket.on("ping", hear);
  socket.on("pong", hear);
  return {
    hear,
    silentMs: (now) => now - heardAt,
    check(now) {
      // Whom we do not read cannot be heard.
      if (socket.isPaused) return hear();
      if (now - heardAt >= limits.silenceMs) return socket.terminate();
      if (now - heardAt < limits.pingAfterMs || isPinged) return;
      isPinged = true;
      if (socket.readyState === WebSocket.OPEN) socket.ping();
    },
  };
}
