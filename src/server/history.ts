/**
 * Checkpoints: places in the server's history that agents remember. Whoever restores the database from
 * a back-up takes the server's memory back in time, but not the agents': they notice.
 *
 * Invariant: a checkpoint is sealed with the server's own key, so that no agent can make one up and have
 * the server believe that it lost its memory.
 */
import { createHmac, timingSafeEqual } from "node:crypto";
import type { Checkpoint } from "../protocol/frames.ts";
import type { ServerContext } from "./context.ts";
import type { Sql } from "./database.ts";

/** The newest place in history, to be remembered by an agent. */
export async function newestCheckpoint(
  context: ServerContext,
  sql: Sql = context.database,
): Promise<Checkpoint> {
  const [row] = await sql.query<{ position: number; hash: string }>(
    "select id as position, event_mark(events) as hash from events order by id desc limit 1",
  );
  const { position, hash } = row ?? { position: 0, hash: "" };
  return { position, mark: `${hash}.${seal(context, position, hash)}` };
}

/** The newest place in history for many who ask at once. */
export interface Checkpoints {
  /** Not older than this call: everything that was committed before it is part of it. */
  newest(): Promise<Checkpoint>;
}

/** Reads once for all who asked while the last read was under way. */
export function createCheckpoints(context: ServerContext): Checkpoints {
  let reading: Promise<unknown> = Promise.resolve();
  let next: Promise<Checkpoint> | null = null;
  return {
    newest() {
      next ??= reading.then(() => {
        next = null;
        const read = newestCheckpoint(context);
        reading = read.catch(() => undefined);
        return read;
      });
      return next;
    },
  };
}

/** `lost`: this server sealed it, but the database does not tell of it. `forged`: it did not. */
export async function judgeCheckpoint(
  context: ServerContext,
  { position, mark }: Checkpoint,
): Promise<"known" | "lost" | "forged"> {
  const [hash = "", given = ""] = mark.split(".");
  const expected = Buffer.from(seal(context, position, hash));
  const isOurs = given.length === expected.length && timingSafeEqual(Buffer.from(given), expected);
  if (!isOurs) return "forged";
  if (position === 0) return "known";
  const [row] = await context.database.query<{ hash: string }>(
    "select event_mark(events) as hash from events where id = $1",
    [position],
  );
  return row?.hash === hash ? "known" : "lost";
}

function seal(context: ServerContext, position: number, hash: string): string {
  const secret = context.keys.signing.privateKey.export({ format: "der", type: "pkcs8" });
  return createHmac("sha256", secret)
    .update(`landfall-checkpoint\n${position}\n${hash}`)
    .digest("base64url");
}
