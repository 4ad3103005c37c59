/**
 * Enrolment: a one-time code is made, stored hashed, and traded once for an agent's identity.
 *
 * The same code with the same public key gives the same answer again, since the first answer may have
 * been lost on the way; with any other key it is a used code.
 */
import { createHash } from "node:crypto";
import { Fault } from "../model/fault.ts";
import { type AgentId, createId, type InstallId } from "../model/ids.ts";
import type { EnrolmentAnswer } from "../protocol/enrolment.ts";
import { decodePublicKey } from "../protocol/signed-document.ts";
import type { ServerContext } from "./context.ts";
import { onlyRow, type Sql } from "./database.ts";
import { recordEvent } from "./event-queue.ts";

const codeMinutes = 15;
const secretBytes = 24;

interface CodeRow {
  hash: string;
  role: "build" | "install";
  install_id: InstallId | null;
  expired: boolean;
  agent_id: AgentId | null;
}

/** Makes a code within a transaction; the caller sees to it that the code reaches the agent. */
export async function insertEnrolmentCode(
  context: ServerContext,
  sql: Sql,
  role: "build" | "install",
  installId: string | null,
): Promise<{ code: string; expiresAt: Date }> {
  const secret = Buffer.from(context.random(secretBytes)).toString("base64url");
  const code = `lfe_${secret}.${context.keys.rootKeyId}`;
  const row = onlyRow(
    await sql.query<{ expires_at: Date }>(
      `insert into enrolment_codes (hash, role, install_id, expires_at)
       values ($1, $2, $3, clock_timestamp() + make_interval(mins => $4)) returning expires_at`,
      [hashCode(code), role, installId, codeMinutes],
    ),
  );
  return { code, expiresAt: row.expires_at };
}

/** Makes a code for a person who starts an agent by hand. */
export function createEnrolmentCode(
  context: ServerContext,
  actor: string,
  { role, installName }: { role: "build" | "install"; installName: string | null },
): Promise<{ code: string; expiresAt: string }> {
  return context.database.transaction(actor, async (sql) => {
    if ((role === "install") !== (installName !== null)) {
      throw new Fault(
        "invalid",
        "Expected an install's name with role `install`, and none with `build`.",
      );
    }
    const [install] = await sql.query<{ id: string }>(
      "select id from installs where name = $1 and state <> 'deleted'",
      [installName],
    );
    if (role === "install" && !install) {
      throw new Fault(
        "not_found",
        `Expected an install, but there is none called \`${installName}\`.`,
      );
    }
    const { code, expiresAt } = await insertEnrolmentCode(context, sql, role, install?.id ?? null);
    return { code, expiresAt: expiresAt.toISOString() };
  });
}

/** Trades a code for an identity; a refusal is an event, and changes nothing. */
export async function enrolAgent(
  context: ServerContext,
  code: string,
  publicKey: string,
): Promise<EnrolmentAnswer> {
  decodePublicKey(publicKey);
  const outcome = await context.database.transaction("enrolment", (sql) =>
    takeCode(context, sql, code, publicKey),
  );
  if ("refusal" in outcome) throw new Fault("unauthorized", outcome.refusal);
  context.wake.notify("live");
  const { role, installId, agentId } = outcome;
  const { rootPublicKey, keyset } = context.keys;
  return { agentId, role, installId, rootPublicKey, keyset };
}

async function takeCode(
  context: ServerContext,
  sql: Sql,
  code: string,
  publicKey: string,
): Promise<
  { refusal: string } | { agentId: AgentId; role: CodeRow["role"]; installId: InstallId | null }
> {
  const [row] = await sql.query<CodeRow>(
    `select hash, role, install_id, expires_at < clock_timestamp() as expired, agent_id
     from enrolment_codes where hash = $1 for update`,
    [hashCode(code)],
  );
  const known = row?.agent_id ? await findAgentByKey(sql, publicKey) : null;
  if (row && known && known === row.agent_id) {
    return { agentId: known, role: row.role, installId: row.install_id };
  }
  const refusal = refusalOf(row) ?? (await takenBy(sql, row?.install_id ?? null));
  if (refusal || !row) {
    const reason = refusal ?? "";
    await recordEvent(sql, {
      kind: "enrolment.refused",
      actor: "enrolment",
      installId: row?.install_id ?? null,
      data: { reason },
    });
    return { refusal: reason };
  }
  const agentId = createId("agt", context.now(), context.random);
  await sql.query(
    `insert into agents (id, role, install_id, public_key, generation)
     values ($1, $2, $3, $4, coalesce((select generation from installs where id = $3), 1))`,
    [agentId, row.role, row.install_id, publicKey],
  );
  await sql.query(
    "update enrolment_codes set used_at = clock_timestamp(), agent_id = $2 where hash = $1",
    [row.hash, agentId],
  );
  return { agentId, role: row.role, installId: row.install_id };
}

function refusalOf(row: CodeRow | undefined): string | null {
  const remedy = "Make a new one with `landfall agents code`, and start the agent with it.";
  if (!row)
    return `Expected an enrolment code of this server, but this one is not known. ${remedy}`;
  if (row.agent_id)
    return `Expected a fresh enrolment code, but this one was used already. ${remedy}`;
  if (row.expired) return `Expected a fresh enrolment code, but this one has expired. ${remedy}`;
  return null;
}

async function takenBy(sql: Sql, installId: string | null): Promise<string | null> {
  if (installId === null) return null;
  const [agent] = await sql.query<{ id: string }>(
    "select id from agents where install_id = $1 and revoked_at is null",
    [installId],
  );
  return agent
    ? `Expected an install without an agent, but \`${agent.id}\` is enrolled for it. An install has one agent.`
    : null;
}

async function findAgentByKey(sql: Sql, publicKey: string): Promise<AgentId | null> {
  const [row] = await sql.query<{ id: AgentId }>(
    "select id from agents where public_key = $1 and revoked_at is null",
    [publicKey],
  );
  return row?.id ?? null;
}

function hashCode(code: string): string {
  return createHash("sha256").update(code).digest("hex");
}
