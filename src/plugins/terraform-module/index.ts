/**
 * `terraform_module`: a module applied by `terraform` or `tofu`, with its state in the install's store.
 *
 * What is approved is what runs: `plan` saves Terraform's own plan file, `apply` applies those bytes.
 */
import { cp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { errorCode } from "../../model/file-fault.ts";
import { OperationFailure, type Plugin, type PluginContext } from "../../plugin/plugin.ts";
import { parseConfig, requireGiven } from "../../plugin/serve.ts";
import { Config, OutputValues, SavedPlan } from "./config.ts";
import { lockFile, openModule, type Terraform } from "./terraform.ts";

const planFile = "landfall.tfplan";
const changesExitCode = 2;

export const plugin: Plugin = {
  sheet: {
    name: "terraform_module",
    needs: ["terraform"],
    operations: ["build", "plan", "apply", "destroy"],
  },
  operations: { build, plan, apply, destroy },
};

async function build({ request }: PluginContext): Promise<void> {
  const source = requireGiven(request.sourceDirectory, "sourceDirectory");
  const target = requireGiven(request.outputDirectory, "outputDirectory");
  await cp(source, target, { recursive: true, verbatimSymlinks: true });
  // What a developer's own runs left behind is neither source nor safe to ship: it may hold state.
  for (const name of [".terraform", "terraform.tfstate", "terraform.tfstate.backup"]) {
    await rm(join(target, name), { recursive: true, force: true });
  }
}

async function plan(context: PluginContext): Promise<void> {
  const terraform = await openModule(context, parseConfig(Config, context.request));
  const exitCode = await terraform.run(
    ["plan", "-input=false", "-no-color", "-detailed-exitcode", `-out=${planFile}`],
    [0, changesExitCode],
  );
  const file = await readFile(join(terraform.directory, planFile));
  const lock = await readIfThere(join(terraform.directory, lockFile));
  context.givePlan({
    plan: { file: file.toString("base64"), lock },
    diff: (await terraform.capture(["show", "-no-color", planFile])).trim(),
    changes: exitCode === changesExitCode,
  });
}

async function apply(context: PluginContext): Promise<void> {
  const saved = SavedPlan.safeParse(context.request.plan);
  if (!saved.success)
    throw new OperationFailure("Expected a saved Terraform plan, got something else.");
  const config = parseConfig(Config, context.request);
  // The lock file must be there before `init` chooses providers.
  const terraform = await openModule(context, config, saved.data.lock);
  const file = join(terraform.directory, planFile);
  await writeFile(file, Buffer.from(saved.data.file, "base64"), { mode: 0o600 });
  await terraform.run(["apply", "-input=false", "-no-color", "-auto-approve", planFile]);
  await giveOutputs(context, terraform);
}

async function destroy(context: PluginContext): Promise<void> {
  const terraform = await openModule(context, parseConfig(Config, context.request));
  await terraform.run(["destroy", "-input=false", "-no-color", "-auto-approve"]);
}

async function giveOutputs(context: PluginContext, terraform: Terraform): Promise<void> {
  const outputs = OutputValues.parse(
    JSON.parse(await terraform.capture(["output", "-json", "-no-color"])),
  );
  for (const [name, { value, sensitive }] of Object.entries(outputs)) {
    context.giveOutput(name, value as Parameters<PluginContext["giveOutput"]>[1], { sensitive });
  }
}

function readIfThere(path: string): Promise<string | null> {
  return readFile(path, "utf8").catch((error: unknown) => {
    if (errorCode(error) === "ENOENT") return null;
    throw error;
  });
}
