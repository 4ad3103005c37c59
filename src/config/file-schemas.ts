/**
 * The keys of each kind of file, as schemas: metadata, sandbox, runner, inputs. Components have their
 * own file.
 *
 * A schema lists every key of the app format, also those that this version does not use, so that an
 * unknown key is a slip and nothing else.
 */
import { z } from "zod";
import { parseDuration } from "../model/duration.ts";

const Text = z.string();
/** A map of names to text; the format takes no numbers here, so that nothing is guessed. */
export const TextMap = z.record(z.string(), z.string());

/** Text such as `30s` or `2m30s`. */
export const DurationText = z.string().superRefine((text, context) => {
  if (parseDuration(text) !== null) return;
  context.addIssue({
    code: "custom",
    message: `Expected a duration such as \`30s\` or \`2m30s\`, got \`${text}\`.`,
  });
});

export const GitSource = z.strictObject({ repo: Text, directory: Text, branch: Text });
export const FolderSource = z.strictObject({ path: Text });
export const OperationRoles = z.array(z.strictObject({ operation: Text, role: Text }));
export const VarFiles = z.array(z.strictObject({ contents: Text }));

export const Metadata = z.strictObject({
  version: z.enum(["v1", "v2"]),
  name: Text.optional(),
  display_name: Text.optional(),
  description: Text.optional(),
  readme: Text.optional(),
  slack_webhook_url: Text.optional(),
  label_colors: TextMap.optional(),
  default_labels: TextMap.optional(),
  customer_managed: z.looseObject({}).optional(),
  // Other tools' own table; seen in most published apps.
  onboarding: z.looseObject({}).optional(),
});

export const Sandbox = z.strictObject({
  type: Text.default("terraform"),
  terraform_version: Text.optional(),
  runtime: z.enum(["go", "nodejs", "python"]).optional(),
  pulumi_version: Text.optional(),
  pulumi_config: TextMap.optional(),
  public_repo: GitSource.optional(),
  connected_repo: GitSource.optional(),
  source: FolderSource.optional(),
  vars: TextMap.optional(),
  var_file: VarFiles.optional(),
  env_vars: TextMap.optional(),
  drift_schedule: Text.optional(),
  operation_roles: OperationRoles.optional(),
  max_auto_retries: z.int().min(0).max(20).optional(),
  skip_noops: z.boolean().optional(),
  auto_approve_on_policies_passing: z.boolean().optional(),
});

export const Runner = z.strictObject({
  runner_type: z.enum([
    "local",
    "kubernetes",
    "aws",
    "gcp",
    "azure",
    "aws-ecs",
    "aws-eks",
    "azure-aks",
    "azure-acs",
    "gcp-gke",
  ]),
  helm_driver: z.enum(["configmap", "secret"]).optional(),
  env_vars: TextMap.optional(),
  init_script_url: Text.optional(),
  instance_type: Text.optional(),
});

export const Input = z.strictObject({
  name: Text,
  display_name: Text.optional(),
  description: Text.optional(),
  group: Text.optional(),
  default: z.union([z.string(), z.number(), z.boolean()]).optional(),
  required: z.boolean().optional(),
  sensitive: z.boolean().optional(),
  type: z.enum(["string", "number", "list", "json", "bool", "yaml", "hcl"]).optional(),
  user_configurable: z.boolean().optional(),
  internal: z.boolean().optional(),
});

export const InputGroup = z.strictObject({
  name: Text,
  display_name: Text.optional(),
  description: Text.optional(),
});

/** The top of `inputs.toml`; its entries are checked one by one, so that one fault hides no other. */
export const InputsFile = z.strictObject({
  input: z.array(z.looseObject({})).optional(),
  group: z.array(z.looseObject({})).optional(),
  source: Text.optional(),
  sources: z.array(Text).optional(),
});
