/** plan: what an apply would change. It changes nothing itself but the store's newest plan. */
import type { Outcome } from "../model/job.ts";
import { OperationFailure } from "../plugin/plugin.ts";
import { fetchArtifact } from "./artifact-folder.ts";
import { baseDigestOf, withComponent, withStateBackend } from "./component.ts";
import { type ExecutorContext, requestFor, requirePart, requireSuccess } from "./context.ts";
import { cut } from "./event-log.ts";
import { storePlan } from "./plan-record.ts";
import { renderConfig } from "./values.ts";

/** What a person reads is bounded; the plan itself is not cut. */
const diffBytesMax = 64 * 1024;

/** Runs the plugin's plan and keeps the result in the install. */
export function plan(context: ExecutorContext): Promise<Outcome> {
  return withComponent(context, async (component) => {
    const { name, type } = requirePart(context.manifest.component, "component");
    const artifact = await fetchArtifact(context);
    const { config, sensitiveTexts } = await renderConfig(context, component.store);
    for (const text of sensitiveTexts) context.redactor.add(text);
    const baseDigest = await baseDigestOf(component, artifact.digest, config);
    const result = await withStateBackend(context, component, (stateBackend) =>
      context.runPlugin(
        requestFor(
          context,
          "plan",
          { name, type, config },
          {
            artifactDirectory: artifact.directory,
            state: component.stateValue,
            stateBackend,
          },
        ),
      ),
    );
    requireSuccess(result);
    if (!result.plan) {
      throw new OperationFailure("Expected the plugin to give a plan, got an outcome without one.");
    }
    const diff = cut(context.redactor.redact(result.plan.diff), diffBytesMax);
    const digests = await storePlan(component, result.plan.plan, diff, baseDigest);
    return { status: "succeeded", plan: { ...digests, changes: result.plan.changes, diff } };
  });
}
