/**
 * What an agent runs, as its connection knows it: how many slots are left, which tokens run out, which
 * cancels it has been told. An idle agent's costs nothing.
 */
import type { JobId } from "../../model/ids.ts";
import type { Manifest } from "../../protocol/documents.ts";
import type { JobKey } from "../../protocol/job-key.ts";
import type { ServerContext } from "../context.ts";
import { createCredentials, holdsToken, tokenMinutes } from "./credentials.ts";
import type { EffectBody } from "./frame-check.ts";
import type { Finding } from "./lookout.ts";

const cancelGraceSeconds = 10;

interface Held {
  readonly key: JobKey;
  readonly manifest: Manifest;
  /** When its token is renewed. */
  renewAt: number;
}

export interface HeldJobs {
  readonly count: number;
  /** `isFresh`: its token was made just now. */
  hold(key: JobKey, manifest: Manifest, isFresh: boolean): void;
  release(key: JobKey): void;
  /** Tells of each cancel once. */
  sendCancels(cancels: Finding["cancels"]): Promise<void>;
  /** Tokens live for minutes; a job that runs longer gets new ones in time. */
  renewTokens(): Promise<void>;
}

/** None yet. */
export function createHeldJobs(
  context: ServerContext,
  sendEffect: (body: EffectBody) => Promise<void>,
): HeldJobs {
  let held: Map<JobId, Held> | null = null;
  let told: Set<JobId> | null = null;
  const renewTime = () => context.now().getTime() + (tokenMinutes * 60_000) / 2;
  return {
    get count() {
      return held?.size ?? 0;
    },
    hold(key, manifest, isFresh) {
      held ??= new Map();
      held.set(key.jobId, { key, manifest, renewAt: isFresh ? renewTime() : 0 });
    },
    release({ jobId }) {
      held?.delete(jobId);
      told?.delete(jobId);
      if (held?.size === 0) held = null;
      if (told?.size === 0) told = null;
    },
    async sendCancels(cancels) {
      for (const { id: jobId, generation, n } of cancels) {
        told ??= new Set();
        if (told.has(jobId)) continue;
        told.add(jobId);
        const epoch = { generation, n };
        await sendEffect({ type: "cancel", jobId, epoch, graceSeconds: cancelGraceSeconds });
      }
    },
    async renewTokens() {
      for (const each of held?.values() ?? []) {
        if (!holdsToken(each.manifest) || context.now().getTime() < each.renewAt) continue;
        each.renewAt = renewTime();
        const credentials = await context.database.transaction("server", (sql) =>
          createCredentials(context, sql, each.manifest, each.key),
        );
        await sendEffect({ type: "credentials", ...each.key, credentials });
      }
    },
  };
}
