/** What the server's functions work with: made once in `bin/server.ts`, handed down, never global. */
import type { Logger } from "pino";
import type { SigningKey } from "../protocol/signed-document.ts";
import type { BlobStore } from "./blob-store.ts";
import type { Database } from "./database.ts";
import type { Wake } from "./wake.ts";

/** The server's keys. The root key signs keysets; the signing key signs documents, frames and tokens. */
export interface ServerKeys {
  readonly rootKeyId: string;
  readonly rootPublicKey: string;
  readonly signing: SigningKey;
  /** The newest keyset, signed by the root key. */
  readonly keyset: string;
  /** Public keys by id, for whoever verifies. */
  readonly publicKeys: Readonly<Record<string, string>>;
}

export interface Progress {
  readonly label: string;
  readonly done: number;
  readonly total: number | null;
}

export interface ServerContext {
  readonly database: Database;
  readonly blobs: BlobStore;
  readonly keys: ServerKeys;
  readonly wake: Wake;
  readonly log: Logger;
  /** Where agents, jobs and people reach this server. */
  readonly publicUrl: string;
  /** Names this process among the servers on one database. */
  readonly serverId: string;
  /** The newest progress of running jobs, for people's eyes; lost with the process, and that is fine. */
  readonly progress: Map<string, Progress>;
  readonly now: () => Date;
  readonly random: (size: number) => Uint8Array;
}
