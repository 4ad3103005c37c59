/**
 * apply: what was approved, and nothing else. The plan comes from the install's store, its base is
 * computed anew, and any difference ends the job before anything is touched.
 *
 * A try that had written all and was killed before it could say so is not done again: the next try of
 * the same job finds its mark, and tells what is in the store.
 */
import type { Outcome } from "../model/job.ts";
import { fetchArtifact } from "./artifact-folder.ts";
import {
  baseDigestOf,
  readToldOutputs,
  withComponent,
  withStateBackend,
  writeIntent,
  writeOutputs,
  writeState,
} from "./component.ts";
import { type ExecutorContext, requestFor, requirePart, requireSuccess } from "./context.ts";
import { loadApprovedPlan, removePlan } from "./plan-record.ts";
import { renderConfig } from "./values.ts";

/** Applies the approved plan and keeps state and outputs in the install. */
export function apply(context: ExecutorContext): Promise<Outcome> {
  return withComponent(context, async (component) => {
    const { name, type } = requirePart(context.manifest.component, "component");
    const approval = requirePart(context.manifest.approval, "approval");
    if (component.intent?.appliedBy === context.manifest.jobId) {
      context.log.log("system", "an earlier try of this job has applied it; nothing is done again");
      await removePlan(component);
      return { status: "succeeded", ...(await readToldOutputs(component)) };
    }
    const artifact = await fetchArtifact(context);
    const { config, sensitiveTexts } = await renderConfig(context, component.store);
    for (const text of sensitiveTexts) context.redactor.add(text);
    const baseDigest = await baseDigestOf(component, artifact.digest, config);
    const plan = await loadApprovedPlan(component, approval, baseDigest);
    const intent = { config, artifactDigest: artifact.digest };
    const formerTexts = component.intent?.sensitiveTexts ?? [];
    const allTexts = [...new Set([...formerTexts, ...sensitiveTexts])];
    await writeIntent(component, { ...intent, sensitiveTexts: allTexts });
    const result = await withStateBackend(context, component, (stateBackend) =>
      context.runPlugin(
        requestFor(
          context,
          "apply",
          { name, type, config },
          {
            artifactDirectory: artifact.directory,
            state: component.stateValue,
            plan,
            stateBackend,
          },
        ),
      ),
    );
    // Also after a failure: the state is what it left behind.
    if (result.state) await writeState(component, result.state.value);
    requireSuccess(result);
    const { outputs, outputsHash } = await writeOutputs(context, component, result.outputs);
    // Only what the new state may hold must stay hidden from now on.
    const appliedBy = context.manifest.jobId;
    await writeIntent(component, { ...intent, sensitiveTexts: [...sensitiveTexts], appliedBy });
    await removePlan(component);
    return { status: "succeeded", outputs, outputsHash };
  });
}
