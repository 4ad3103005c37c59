/**
 * Frames with an effect: signed for one agent and one connection, and counted from one, so that neither
 * a proxy nor a replay can forge one. They go out in the order in which they were asked for.
 */
import { WebSocket } from "ws";
import type { AgentId } from "../../model/ids.ts";
import type { ServerFrame } from "../../protocol/frames.ts";
import { signDocument } from "../../protocol/signed-document.ts";
import type { ServerContext } from "../context.ts";
import { type EffectBody, effectFor } from "./frame-check.ts";

/** Whom they are for, and which version they must be of. */
export interface Addressee {
  readonly agentId: AgentId;
  readonly agentNonce: string;
  readonly protocol: number;
}

export interface Effects {
  /** Nothing is sent before it is known to whom. */
  address(addressee: Addressee): void;
  send(effect: EffectBody): Promise<void>;
}

/** The effects of one connection. */
export function createEffects(context: ServerContext, socket: WebSocket): Effects {
  let addressee: Addressee | null = null;
  let counter = 0;
  let sent: Promise<unknown> = Promise.resolve();

  async function sendNext(effect: EffectBody): Promise<void> {
    if (!addressee || socket.readyState !== WebSocket.OPEN) return;
    const { agentId, agentNonce, protocol } = addressee;
    const body = effectFor(protocol, effect);
    if (!body) return;
    counter += 1;
    const payload = { ...body, counter, agentNonce, agentId };
    const document = await signDocument("landfall-frame", payload, context.keys.signing);
    sendFrame(socket, { type: "signed", document });
  }

  return {
    address(to) {
      addressee = to;
    },
    send(effect) {
      const sending = sent.then(() => sendNext(effect));
      sent = sending.catch(() => {});
      return sending;
    },
  };
}

/** Sends a frame, unless the socket is over. */
export function sendFrame(socket: WebSocket, frame: ServerFrame): void {
  if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(frame));
}
