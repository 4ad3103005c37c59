/**
 * Enrolment: an agent trades a one-time code for its identity.
 *
 * A code is `lfe_<secret>.<root key id>`: the second part lets the agent check that it speaks to the
 * server that made the code. The server keeps only a hash of it. The code travels in the
 * `Authorization` header (`Enrolment <code>`), never in a URL.
 */
import { z } from "zod";
import { AgentIdText, InstallIdText } from "./json-schema.ts";

export const enrolmentPath = "/api/enrol";
/** Where agents open their WebSocket. */
export const gatewayPath = "/agent";

export const EnrolmentRequest = z.object({ publicKey: z.string() });

export const EnrolmentAnswer = z.object({
  agentId: AgentIdText,
  role: z.enum(["build", "install"]),
  installId: InstallIdText.nullable(),
  rootPublicKey: z.string(),
  keyset: z.string(),
});
export type EnrolmentAnswer = z.output<typeof EnrolmentAnswer>;
