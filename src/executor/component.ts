/**
 * A component as the install's store knows it while one job acts on it: opened under the job's fence,
 * read once, written by compare-and-set against what was read.
 */
import { z } from "zod";
import type { Output } from "../model/job.ts";
import {
  canonicalJson,
  type Digest,
  digestOfJson,
  type Json,
  type JsonObject,
} from "../model/json.ts";
import { DigestText, JsonRecord, JsonValue } from "../protocol/json-schema.ts";
import { openFolderStore } from "../store/folder-store.ts";
import { type Fence, type Store, type StoredValue, storeKeys } from "../store/store.ts";
import { type ExecutorContext, fenceOf, requirePart } from "./context.ts";
import type { GivenOutput } from "./plugin-process.ts";
import { startStateBackend } from "./state-backend.ts";
import { hashOutputs, readOutputs, redactOutputs, type StoredOutputs } from "./values.ts";

/** What the last apply was about to do: `destroy` works with it, and old secrets stay redacted. */
const Intent = z.object({
  config: JsonRecord,
  sensitiveTexts: z.array(z.string()),
  artifactDigest: DigestText.nullable(),
  /** The job whose apply came to its end: state and outputs are written. */
  appliedBy: z.string().exactOptional(),
});
export type Intent = z.output<typeof Intent>;

export interface OpenComponent {
  readonly store: Store;
  readonly fence: Fence;
  readonly name: string;
  readonly state: StoredValue | null;
  readonly stateValue: Json;
  readonly intent: Intent | null;
}

/** Opens the store, raises the fence and reads; `use` gets it, and it is closed whatever happens. */
export async function withComponent<T>(
  context: ExecutorContext,
  use: (component: OpenComponent) => Promise<T>,
): Promise<T> {
  const store = await openFolderStore(
    requirePart(context.place.storeDirectory, "place.storeDirectory"),
  );
  try {
    const fence = fenceOf(context);
    await store.openFence(fence);
    const name = fence.component;
    for (const key of await listConflicts(store, name)) context.conflicts.add(key);
    const state = await store.read(storeKeys.state(name));
    const intent = await readIntent(store, name);
    for (const text of intent?.sensitiveTexts ?? []) context.redactor.add(text);
    redactOutputs(context, await readOutputs(store, storeKeys.outputs(name)));
    const stateValue = state ? JsonValue.parse(decode(state.value)) : null;
    return await use({ store, fence, name, state, stateValue, intent });
  } finally {
    await store.close();
  }
}

/** What older tries of this component's jobs were refused, and is kept aside. */
async function listConflicts(store: Store, name: string): Promise<string[]> {
  const keys = [storeKeys.state, storeKeys.backendState, storeKeys.outputs, storeKeys.intent];
  const found = await Promise.all(keys.map((key) => store.list(`conflicts/${key(name)}/`)));
  return found.flat();
}

/** Serves the component's Terraform state while `use` runs. */
export async function withStateBackend<T>(
  context: ExecutorContext,
  { store, fence }: OpenComponent,
  use: (backend: { address: string; username: string; password: string }) => Promise<T>,
): Promise<T> {
  const isReadOnly = context.manifest.operation === "plan";
  const backend = await startStateBackend({ store, fence, isReadOnly, random: context.random });
  context.redactor.add(backend.password);
  const { address, username, password } = backend;
  try {
    return await use({ address, username, password });
  } finally {
    await backend.close();
  }
}

/** The base of a plan: what the component is now, and what it shall be made of. Keyed: it tells no value. */
export async function baseDigestOf(
  { store, name, state }: OpenComponent,
  artifactDigest: Digest | null,
  config: JsonObject,
): Promise<Digest> {
  const backendState = await store.read(storeKeys.backendState(name));
  return digestOfJson({
    state: state ? store.hash(state.value) : null,
    backendState: backendState ? store.hash(backendState.value) : null,
    artifact: artifactDigest,
    config: store.hash(canonicalJson(config)),
  });
}

/** Remembers what is about to be applied. */
export async function writeIntent(
  { store, fence, name }: OpenComponent,
  intent: Intent,
): Promise<void> {
  await store.write(storeKeys.intent(name), encode(intent), { expectedVersion: "any", fence });
}

/** Writes the state that a plugin sent; refused when something else wrote it meanwhile. */
export async function writeState(
  { store, fence, name, state }: OpenComponent,
  value: Json,
): Promise<void> {
  const expectedVersion = state?.version ?? null;
  await store.write(storeKeys.state(name), encode(value), { expectedVersion, fence });
}

/** Writes all outputs, and gives what the server may know of them. */
export async function writeOutputs(
  context: ExecutorContext,
  component: OpenComponent,
  given: ReadonlyMap<string, GivenOutput>,
): Promise<ToldOutputs> {
  const { store, fence, name } = component;
  const stored = markTainted(context, given);
  await store.write(storeKeys.outputs(name), encode(stored), { expectedVersion: "any", fence });
  return tellOutputs(component, stored);
}

/** What the server may know of outputs. */
export interface ToldOutputs {
  readonly outputs: { readonly [name: string]: Output };
  readonly outputsHash: string;
}

/** What the server may know of the outputs that are in the store. */
export async function readToldOutputs(component: OpenComponent): Promise<ToldOutputs> {
  const { store, name } = component;
  return tellOutputs(component, await readOutputs(store, storeKeys.outputs(name)));
}

function tellOutputs({ store, name }: OpenComponent, stored: StoredOutputs): ToldOutputs {
  const outputs = Object.entries(stored).map(([key, { sensitive, value }]): [string, Output] => [
    key,
    sensitive
      ? { sensitive, hash: store.hash(`output/${name}/${key}\n${canonicalJson(value)}`) }
      : { sensitive, value },
  ]);
  return { outputs: Object.fromEntries(outputs), outputsHash: hashOutputs(store, name, stored) };
}

/** An output that holds a sensitive value is sensitive, whatever the plugin says of it. */
export function markTainted(
  { redactor }: ExecutorContext,
  given: ReadonlyMap<string, GivenOutput>,
): StoredOutputs {
  return Object.fromEntries(
    [...given].map(([name, { value, sensitive }]) => [
      name,
      { sensitive: sensitive || redactor.isTainted(value), value },
    ]),
  );
}

async function readIntent(store: Store, name: string): Promise<Intent | null> {
  const found = await store.read(storeKeys.intent(name));
  return found ? Intent.parse(decode(found.value)) : null;
}

/** A value as the store keeps it. */
export function encode(value: unknown): Uint8Array {
  return new TextEncoder().encode(canonicalJson(value));
}

/** The reverse of `encode`. */
export function decode(bytes: Uint8Array): unknown {
  return JSON.parse(new TextDecoder().decode(bytes));
}
