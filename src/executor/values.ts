/**
 * The values that a component's templates see, from the install's store, and its configuration rendered
 * with them. Sensitive ones are wrapped before they are used and known to the redactor before anything
 * is written.
 */
import { z } from "zod";
import { canonicalJson, type Json, type JsonObject } from "../model/json.ts";
import { renderJson, Sensitive, TemplateError, type TemplateValue } from "../model/template.ts";
import { OperationFailure } from "../plugin/plugin.ts";
import { JsonValue } from "../protocol/json-schema.ts";
import { type Store, storeKeys } from "../store/store.ts";
import { type ExecutorContext, requirePart } from "./context.ts";

export const StoredOutputs = z.record(
  z.string(),
  z.object({ sensitive: z.boolean(), value: JsonValue }),
);
export type StoredOutputs = z.output<typeof StoredOutputs>;

export interface RenderedConfig {
  readonly config: JsonObject;
  readonly sensitiveTexts: readonly string[];
}

/** One keyed hash over all outputs of a component: what the server compares, and templates count on. */
export function hashOutputs(store: Store, component: string, outputs: StoredOutputs): string {
  return store.hash(`outputs/${component}\n${canonicalJson(outputs)}`);
}

/** The component's configuration with every template rendered. */
export async function renderConfig(
  context: ExecutorContext,
  store: Store,
): Promise<RenderedConfig> {
  const component = requirePart(context.manifest.component, "component");
  const outputs = await readDependencies(context, store);
  return render(
    component.config,
    valuesTree(context, outputs, await readOutputs(store, storeKeys.sandboxOutputs)),
  );
}

/** The sandbox's configuration: it is rendered before there is any store. */
export function renderSandboxConfig(context: ExecutorContext): RenderedConfig {
  const sandbox = requirePart(context.manifest.sandbox, "sandbox");
  return render(sandbox.config, valuesTree(context, new Map(), {}));
}

/** What a component (or the sandbox) gave last, with its sensitive values made known to nobody. */
export async function readOutputs(store: Store, key: string): Promise<StoredOutputs> {
  const found = await store.read(key);
  return found ? StoredOutputs.parse(JSON.parse(new TextDecoder().decode(found.value))) : {};
}

/** Makes every sensitive output known to the redactor. */
export function redactOutputs({ redactor }: ExecutorContext, outputs: StoredOutputs): void {
  for (const { sensitive, value } of Object.values(outputs)) if (sensitive) redactor.add(value);
}

async function readDependencies(
  context: ExecutorContext,
  store: Store,
): Promise<Map<string, StoredOutputs>> {
  const found = new Map<string, StoredOutputs>();
  for (const [name, { outputsHash }] of Object.entries(context.manifest.dependencies)) {
    const outputs = await readOutputs(store, storeKeys.outputs(name));
    redactOutputs(context, outputs);
    if (hashOutputs(store, name, outputs) !== outputsHash) {
      throw new OperationFailure(
        `Expected the outputs of \`${name}\` as they were when this job was made; they have changed since. A new plan takes the new ones.`,
        "stale_values",
      );
    }
    found.set(name, outputs);
  }
  return found;
}

function render(config: JsonObject, values: TemplateValue): RenderedConfig {
  try {
    const { value, sensitiveTexts } = renderJson(config, values);
    return { config: value as JsonObject, sensitiveTexts };
  } catch (error) {
    if (!(error instanceof TemplateError)) throw error;
    throw new OperationFailure(error.message, "render_failed", error);
  }
}

function valuesTree(
  { manifest }: ExecutorContext,
  components: ReadonlyMap<string, StoredOutputs>,
  sandboxOutputs: StoredOutputs,
): TemplateValue {
  const install = manifest.install ?? { id: "", name: "" };
  const sandbox = { type: manifest.sandbox?.type ?? "", outputs: wrap(sandboxOutputs) };
  return {
    id: install.id,
    name: install.name,
    install: { ...install, inputs: manifest.inputs, sandbox },
    inputs: { inputs: manifest.inputs },
    app: { ...manifest.app },
    sandbox,
    components: Object.fromEntries(
      [...components].map(([name, outputs]) => [name, { name, outputs: wrap(outputs) }]),
    ),
  };
}

function wrap(outputs: StoredOutputs): { [name: string]: Json | Sensitive } {
  return Object.fromEntries(
    Object.entries(outputs).map(([name, { sensitive, value }]) => [
      name,
      sensitive ? new Sensitive(value) : value,
    ]),
  );
}
