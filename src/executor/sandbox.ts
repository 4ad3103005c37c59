/** provision, and destroy of a whole install: the sandbox's own plugin, on the tenant's side. */
import type { Outcome, Output } from "../model/job.ts";
import { digestOfJson } from "../model/json.ts";
import { OperationFailure } from "../plugin/plugin.ts";
import { markTainted } from "./component.ts";
import { type ExecutorContext, requestFor, requirePart, requireSuccess } from "./context.ts";
import { renderSandboxConfig } from "./values.ts";

/** Runs the sandbox's plugin; its outputs are for everybody in the install, so none is sensitive. */
export async function operateSandbox(context: ExecutorContext): Promise<Outcome> {
  const { manifest, place } = context;
  const operation = manifest.operation === "provision" ? "provision" : "destroy";
  const { config } = renderSandboxConfig(context);
  const { enrolment } = await context.readCredentials();
  const component = { name: "sandbox", type: manifest.plugin, config };
  const result = await context.runPlugin(
    requestFor(context, operation, component, {
      sandbox: {
        installsDirectory: requirePart(place.installsDirectory, "place.installsDirectory"),
        programs: requirePart(place.programs, "place.programs"),
        enrolment: operation === "provision" ? enrolment : null,
      },
    }),
  );
  requireSuccess(result);
  if (operation === "destroy") return { status: "succeeded" };
  const outputs = Object.entries(markTainted(context, result.outputs)).map(
    ([name, { sensitive, value }]): [string, Output] => {
      if (sensitive) {
        throw new OperationFailure(
          `Expected no sensitive output of a sandbox, got \`${name}\`: the tenant's side has no store for it. Keep it in the install.`,
        );
      }
      return [name, { sensitive, value }];
    },
  );
  const given = Object.fromEntries(outputs);
  return { status: "succeeded", outputs: given, outputsHash: digestOfJson(given) };
}
