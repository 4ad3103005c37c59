/**
 * What may cross a connection, by the version that was negotiated: nothing of version 2 goes to or
 * comes from an agent that speaks 1, and whatever is not a frame is refused in words.
 */
import { z } from "zod";
import {
  type Ack,
  AgentFrame,
  type EffectFrame,
  frameBytesMax,
  type Welcome,
} from "../../protocol/frames.ts";

/** An effect without what every effect carries. */
export type EffectBody = EffectFrame extends infer Frame
  ? Frame extends EffectFrame
    ? Omit<Frame, "counter" | "agentNonce" | "agentId">
    : never
  : never;

type Body<Frame extends EffectFrame> = Omit<Frame, "counter" | "agentNonce" | "agentId">;

const reasonLengthMax = 500;

/** Reads a frame of an agent, or says why it is none. `protocol` is null before the hello. */
export function readFrame(
  data: Buffer,
  isBinary: boolean,
  protocol: number | null,
): { frame: AgentFrame } | { refusal: string } {
  if (isBinary) return { refusal: "Expected text frames, got a binary one." };
  let value: unknown;
  try {
    value = JSON.parse(data.toString());
  } catch {
    return { refusal: `Expected a frame of JSON, got ${data.length} bytes that are not.` };
  }
  const parsed = AgentFrame.safeParse(value);
  if (!parsed.success) {
    const problem = z.prettifyError(parsed.error).slice(0, reasonLengthMax);
    return { refusal: `Expected a frame of the protocol, got one that is not: ${problem}` };
  }
  if (protocol === 1 && isOfVersion2(parsed.data)) {
    return {
      refusal: `Expected frames of protocol 1, which this connection speaks, got \`${parsed.data.type}\` of protocol 2. Connect again with protocol 2.`,
    };
  }
  return { frame: parsed.data };
}

/** Why the socket itself gave up on what came in, in words; null for an ordinary end. */
export function describeSocketError(code: number | undefined): string | null {
  if (code === 1009) return `Expected frames of at most ${frameBytesMax} bytes, got a larger one.`;
  if (code === 1007) return "Expected text in UTF-8, got bytes that are not.";
  if (code === 1002) return "Expected frames of the WebSocket protocol, got something else.";
  return null;
}

/** The effect as this version knows it; null when it has none. */
export function effectFor(protocol: number, body: EffectBody): EffectBody | null {
  if (protocol >= 2) return body;
  switch (body.type) {
    case "recall":
      return null;
    case "welcome": {
      const { creditBytes: _, checkpoint: __, ...rest } = body as Body<z.output<typeof Welcome>>;
      return rest;
    }
    case "ack": {
      const { checkpoint: _, ...rest } = body as Body<z.output<typeof Ack>>;
      return rest;
    }
    default:
      return body;
  }
}

function isOfVersion2(frame: AgentFrame): boolean {
  if (frame.type === "events") return frame.events.some((event) => event.type === "gap");
  return frame.type === "recalled";
}
