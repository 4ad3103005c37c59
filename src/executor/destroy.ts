/**
 * destroy of a component: removes what its applies made, then all that the store knows of it.
 *
 * It works with the configuration that was last applied, not with a newly rendered one: what the
 * templates named may be gone by now.
 */
import { isFault } from "../model/fault.ts";
import type { Outcome } from "../model/job.ts";
import type { JsonObject } from "../model/json.ts";
import { OperationFailure } from "../plugin/plugin.ts";
import { storeKeys } from "../store/store.ts";
import { fetchArtifact } from "./artifact-folder.ts";
import { type OpenComponent, withComponent, withStateBackend, writeState } from "./component.ts";
import { type ExecutorContext, requestFor, requirePart, requireSuccess } from "./context.ts";
import { removePlan } from "./plan-record.ts";
import { renderConfig } from "./values.ts";

/** Runs the plugin's destroy; done again, it finds nothing and succeeds. */
export function destroy(context: ExecutorContext): Promise<Outcome> {
  return withComponent(context, async (component) => {
    const { name, type } = requirePart(context.manifest.component, "component");
    const config = await configFor(context, component);
    const directory = await artifactFor(context);
    const result = await withStateBackend(context, component, (stateBackend) =>
      context.runPlugin(
        requestFor(
          context,
          "destroy",
          { name, type, config },
          {
            artifactDirectory: directory,
            state: component.stateValue,
            stateBackend,
          },
        ),
      ),
    );
    if (result.outcome.status !== "succeeded" && result.state) {
      await writeState(component, result.state.value);
    }
    requireSuccess(result);
    await forget(component);
    return { status: "succeeded" };
  });
}

async function forget(component: OpenComponent): Promise<void> {
  const { store, fence, name } = component;
  await removePlan(component);
  const keys = [storeKeys.outputs, storeKeys.state, storeKeys.backendState, storeKeys.intent];
  for (const key of keys) await store.remove(key(name), { expectedVersion: "any", fence });
}

async function configFor(context: ExecutorContext, component: OpenComponent): Promise<JsonObject> {
  if (component.intent) return component.intent.config;
  try {
    const { config, sensitiveTexts } = await renderConfig(context, component.store);
    for (const text of sensitiveTexts) context.redactor.add(text);
    return config;
  } catch (error) {
    const isUnrenderable =
      error instanceof OperationFailure &&
      (error.code === "render_failed" || error.code === "stale_values");
    if (!isUnrenderable) throw error;
    // It was never applied: what its templates would have become makes no difference.
    return requirePart(context.manifest.component, "component").config;
  }
}

/** Null when there is nothing to fetch; a plugin that needs the artifact says so itself. */
async function artifactFor(context: ExecutorContext): Promise<string | null> {
  if (!context.manifest.artifact?.digest) return null;
  try {
    return (await fetchArtifact(context)).directory;
  } catch (error) {
    if (!isFault(error, "not_found")) throw error;
    context.log.log("system", "the artifact is not in the install's registry; going on without it");
    return null;
  }
}
