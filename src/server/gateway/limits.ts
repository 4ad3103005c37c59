/** The numbers that bound what agents may ask of a gateway; a test may give its own. */
import { frameBytesMax } from "../../protocol/frames.ts";

export interface GatewayLimits {
  /** Nothing heard for so long: ask. */
  readonly pingAfterMs: number;
  /** Nothing heard for so long in all: the connection is dead. */
  readonly silenceMs: number;
  /** From the challenge to the arrival of the hello; waiting in line does not count. */
  readonly helloMs: number;
  /** From a goodbye to the end of the socket. */
  readonly goodbyeMs: number;
  /** One timer looks at all connections. */
  readonly sweepMs: number;
  /** Fewer than the database has connections, so that a storm leaves room for everyone else. */
  readonly handshakesAtOnce: number;
  /** Connections that have not been welcomed yet; more are told to come later. */
  readonly handshakesMax: number;
  readonly retryAfterSeconds: number;
  /** Event bytes of one agent on their way, without an ack. */
  readonly creditBytes: number;
  readonly eventBytesPerSecond: number;
  readonly eventBytesBurst: number;
  /** Frames other than events that wait to be handled. */
  readonly controlFramesMax: number;
  /** Heartbeats and ends of connections are written together this often. */
  readonly seenMs: number;
  /** Leases are renewed together this often. */
  readonly leasesMs: number;
}

/** What a real server takes. */
export const gatewayLimits: GatewayLimits = {
  pingAfterMs: 10_000,
  silenceMs: 20_000,
  helloMs: 10_000,
  goodbyeMs: 5000,
  sweepMs: 1000,
  handshakesAtOnce: 12,
  handshakesMax: 20_000,
  retryAfterSeconds: 5,
  creditBytes: 1024 * 1024,
  eventBytesPerSecond: 4 * 1024 * 1024,
  eventBytesBurst: 2 * frameBytesMax,
  controlFramesMax: 1000,
  seenMs: 1000,
  leasesMs: 500,
};
