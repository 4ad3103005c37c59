/**
 * The install's store: where state, plans and outputs (sensitive ones too) live, and never leave.
 *
 * What every implementation guarantees, and `testStore` checks:
 *  - a write names the version it expects (compare-and-set), so nobody overwrites what they have not read;
 *  - a write names its fence, so that the executor of an older try, come back from the dead, changes
 *    nothing: it is refused with a `conflict`, and what it wanted to write is kept under `conflicts/`;
 *  - versions never repeat, not even after a removal;
 *  - values are encrypted where they rest, and `hash` is keyed: it shows that a value changed, not the value.
 */
import { Fault } from "../model/fault.ts";
import type { JobId } from "../model/ids.ts";
import { type Epoch, formatEpoch } from "../model/job.ts";

/** Larger values are refused: state and plans are read into memory whole. */
export const valueBytesMax = 64 * 1024 * 1024;
export const keyLengthMax = 512;
/** No list is longer than this; ask again with a longer prefix. */
export const listMax = 1000;

/**
 * Which try of which job acts on a component. Epochs count the tries of one job, so jobs are told
 * apart too: the job that opened the fence last is the newest.
 */
export interface Fence {
  readonly component: string;
  readonly jobId: JobId;
  readonly epoch: Epoch;
}

export interface StoredValue {
  readonly value: Uint8Array;
  readonly version: number;
}

export interface WriteOptions {
  /** null: the key must not exist yet. */
  readonly expectedVersion: number | null | "any";
  readonly fence: Fence;
}

export interface Store {
  /** Raises the component's mark to this try; refused when a newer one has opened it already. */
  openFence(fence: Fence): Promise<void>;
  /** The value and its version, or null when there is none. */
  read(key: string): Promise<StoredValue | null>;
  /** Writes and returns the new version. A refused value is kept under `conflicts/`. */
  write(key: string, value: Uint8Array, options: WriteOptions): Promise<number>;
  /** Removes a key; one that does not exist counts as removed. */
  remove(key: string, options: WriteOptions): Promise<void>;
  /** Keys that begin with the prefix, sorted, at most `listMax`. */
  list(prefix: string): Promise<readonly string[]>;
  /** A keyed hash: equal for equal values in this store, and it tells nothing else. */
  hash(value: string | Uint8Array): string;
  close(): Promise<void>;
}

/** Where a component's things are. */
export const storeKeys = {
  outputs: (component: string) => `outputs/${component}`,
  state: (component: string) => `state/${component}`,
  /** What Terraform and its kind keep through the `http` backend. */
  backendState: (component: string) => `backend-state/${component}`,
  /** The configuration that was last applied, or was about to be: what `destroy` works with. */
  intent: (component: string) => `intent/${component}`,
  plan: (digest: string) => `plan/${digest}`,
  /** The digest of the component's newest plan, so that older ones are not kept for ever. */
  newestPlan: (component: string) => `newest-plan/${component}`,
  sandboxOutputs: "sandbox/outputs",
} as const;

/** What is known of a component's fence: the newest job, its newest try, and that it is not an old job. */
export interface FenceMark {
  readonly jobId: string;
  readonly generation: number;
  readonly n: number;
}

/**
 * Whether `fence` may become the mark. `seenBefore` says that the job has held the mark at some time:
 * a job that another has replaced never gets it back.
 */
export function checkOpening(fence: Fence, mark: FenceMark | null, seenBefore: boolean): void {
  if (mark === null) return;
  const { generation, n } = fence.epoch;
  const same = mark.jobId === fence.jobId;
  const older =
    generation < mark.generation || (same && generation === mark.generation && n < mark.n);
  if (older || (!same && seenBefore)) throw fenced(fence, mark);
}

/** Whether `fence` is the mark, which a write needs. */
export function checkFence(fence: Fence, mark: FenceMark | null): void {
  const { generation, n } = fence.epoch;
  if (mark?.jobId === fence.jobId && mark.generation === generation && mark.n === n) return;
  throw fenced(fence, mark);
}

/** Whether the version found is the one that was expected. */
export function checkVersion(
  key: string,
  expected: WriteOptions["expectedVersion"],
  found: number | null,
): void {
  if (expected === "any" || expected === found) return;
  throw new Fault(
    "conflict",
    `Expected \`${key}\` in the install's store at ${describe(expected)}, got ${describe(found)}. Something else wrote it meanwhile; the refused value is kept under \`conflicts/\`.`,
  );
}

/** Refuses keys and values that no store takes. */
export function checkEntry(key: string, value: Uint8Array | null): void {
  if (key.length === 0 || key.length > keyLengthMax) {
    throw new Fault("invalid", `Expected a store key of 1 to ${keyLengthMax} characters.`);
  }
  if (value && value.byteLength > valueBytesMax) {
    throw new Fault(
      "too_large",
      `Expected at most ${valueBytesMax} bytes for \`${key}\`, got ${value.byteLength}.`,
    );
  }
}

/** The key under which a refused value is kept; `number` makes it unique. */
export function conflictKey(key: string, fence: Fence, number: number): string {
  return `conflicts/${key}/${fence.jobId}.${formatEpoch(fence.epoch)}/${number}`;
}

function fenced(fence: Fence, mark: FenceMark | null): Fault {
  const newest = mark ? `${mark.jobId}.${mark.generation}.${mark.n}` : "none";
  return new Fault(
    "conflict",
    `Expected the newest try of a job of \`${fence.component}\` (${newest}), got ${fence.jobId}.${formatEpoch(fence.epoch)}. It has been replaced and must not write.`,
  );
}

function describe(version: number | null | "any"): string {
  return version === null ? "no version (absent)" : `version ${version}`;
}
