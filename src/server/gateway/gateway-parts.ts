/** What a gateway and its connections know of each other. */
import type { ServerContext } from "../context.ts";
import type { Checkpoints } from "../history.ts";
import type { Gathering } from "./gathering.ts";
import type { KnownAgent } from "./handshake.ts";
import type { HandshakeLine } from "./handshake-line.ts";
import type { GatewayLimits } from "./limits.ts";
import type { Looker, Lookout } from "./lookout.ts";
import type { OfferAsk, ReadyOffer } from "./offers.ts";
import type { RefusalLog } from "./refusal-log.ts";
import type { ReportDesk } from "./report-desk.ts";
import type { RollCall } from "./roll-call.ts";

/** What all connections of a gateway have together. */
export interface GatewayParts {
  readonly context: ServerContext;
  readonly limits: GatewayLimits;
  readonly line: HandshakeLine;
  readonly lookout: Lookout;
  readonly rollCall: RollCall;
  readonly refusals: RefusalLog;
  readonly checkpoints: Checkpoints;
  readonly offerDesk: Gathering<OfferAsk, ReadyOffer[]>;
  readonly reportDesk: ReportDesk;
  /** The time of the sweep: it stands still while the whole process does. */
  readonly sweepTime: () => number;
}

export interface AgentConnection extends Looker {
  readonly id: string;
  readonly agent: KnownAgent;
}

/** What the gateway sees of a socket from its first moment. */
export interface Served {
  /** Looks whether it lives, in the time of the sweep. */
  sweep(now: number): void;
  /** The agent's connection once it is welcomed, null before. */
  readonly connection: AgentConnection | null;
}
