/**
 * Uploads: how a blob comes into the registry, in one request or in many.
 *
 *            start             append
 *   (none) --------> waiting ---------> receiving
 *                     |   ^                | |
 *                     |   +-- end of part -+ | write failed
 *                     |       (or the client | (disk full)
 *          cancel,    |        went away)    v
 *          idle too --+----------------> discarded
 *          long       |                      ^
 *                     | finish --------------+ digest differs
 *                     v
 *                    kept  (a blob of its repository, visible at once)
 *
 * Invariant: a session's size is exactly what was written and hashed, so a client that lost its
 * connection may ask for it and go on from there. Sessions are bounded in number, size and idle
 * time; they end with the process, whose leftovers the store sweeps.
 */
import { Fault } from "../model/fault.ts";
import type { Digest } from "../model/json.ts";
import type { ContentStream } from "./content.ts";
import type { StagedFile } from "./durable-file.ts";
import type { FolderStore } from "./folder-store.ts";
import { refuse } from "./registry-refusal.ts";

export interface UploadLimits {
  readonly uploadsMax: number;
  readonly blobBytesMax: number;
  readonly idleMs: number;
}

export interface Upload {
  readonly id: string;
  readonly repository: string;
  size(): number;
}

export interface UploadSessions {
  start(repository: string): Promise<Upload>;
  /** The session of this repository, or a refusal. */
  require(repository: string, id: string): Upload;
  /** Adds a part. When the stream breaks, what came before counts. */
  append(upload: Upload, part: ContentStream): Promise<void>;
  /** Keeps the blob when the bytes match the digest; otherwise nothing of it stays. */
  finish(upload: Upload, digest: Digest): Promise<void>;
  cancel(upload: Upload): Promise<void>;
  /** Discards sessions that nobody touched for too long. */
  sweep(): Promise<void>;
  /** Discards all sessions. */
  close(): Promise<void>;
}

interface Session extends Upload {
  readonly staged: StagedFile;
  state: "waiting" | "receiving";
  touchedAt: number;
}

/** Keeps the sessions of one registry process. */
export function createUploadSessions(
  store: FolderStore,
  limits: UploadLimits,
  options: { now: () => Date; random: (size: number) => Uint8Array },
): UploadSessions {
  const sessions = new Map<string, Session>();
  let starting = 0;
  const clock = () => options.now().getTime();

  async function discard(session: Session): Promise<void> {
    sessions.delete(session.id);
    await session.staged.discard();
  }

  function requireSession(repository: string, id: string): Session {
    const session = sessions.get(id);
    if (session?.repository === repository) return session;
    throw refuse(
      404,
      "BLOB_UPLOAD_UNKNOWN",
      "Expected an upload that is under way. Start it again.",
    );
  }

  function enter(upload: Upload): Session {
    const session = requireSession(upload.repository, upload.id);
    if (session.state !== "waiting") {
      throw refuse(
        409,
        "BLOB_UPLOAD_INVALID",
        "Another request is writing to this upload. Wait for it.",
      );
    }
    session.state = "receiving";
    return session;
  }

  function leave(session: Session): void {
    session.state = "waiting";
    session.touchedAt = clock();
  }

  return {
    async start(repository) {
      if (sessions.size + starting >= limits.uploadsMax) {
        throw refuse(429, "TOOMANYREQUESTS", "Too many uploads are under way. Try again later.", {
          "retry-after": "5",
        });
      }
      starting++;
      try {
        const staged = await store.stage();
        const id = Buffer.from(options.random(16)).toString("hex");
        const session: Session = {
          id,
          repository,
          staged,
          size: staged.size,
          state: "waiting",
          touchedAt: clock(),
        };
        sessions.set(id, session);
        return session;
      } finally {
        starting--;
      }
    },
    require: requireSession,
    async append(upload, part) {
      const session = enter(upload);
      try {
        for await (const piece of part) await write(session, piece, limits.blobBytesMax);
      } catch (error) {
        if (error instanceof WriteFailure) {
          await discard(session);
          throw error.cause;
        }
        throw error;
      } finally {
        leave(session);
      }
    },
    async finish(upload, digest) {
      const session = enter(upload);
      try {
        const got = await session.staged.finish();
        if (got !== digest) {
          throw refuse(400, "DIGEST_INVALID", `Expected bytes with digest ${digest}, got ${got}.`);
        }
        await store.repository(session.repository).addBlob(session.staged, digest);
      } finally {
        await discard(session);
      }
    },
    cancel: (upload) => discard(enter(upload)),
    async sweep() {
      const before = clock() - limits.idleMs;
      for (const session of sessions.values()) {
        if (session.state === "waiting" && session.touchedAt < before) await discard(session);
      }
    },
    async close() {
      for (const session of sessions.values()) await discard(session);
    },
  };
}

// Tells a failure to keep the bytes, after which the session is of no use, from a broken stream.
class WriteFailure extends Error {}

async function write(session: Session, piece: Uint8Array, blobBytesMax: number): Promise<void> {
  try {
    if (session.size() + piece.length > blobBytesMax) {
      throw new Fault(
        "too_large",
        `Expected a blob of at most ${blobBytesMax} bytes. Split it up.`,
      );
    }
    await session.staged.write(piece);
  } catch (cause) {
    throw new WriteFailure("The upload cannot go on.", { cause });
  }
}
