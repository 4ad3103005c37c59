/** The keys of a `terraform_module`, rendered. */
import { z } from "zod";
import { EnvVars } from "../../plugin/config-schema.ts";

export const Config = z.object({
  vars: z.record(z.string(), z.json()).default({}),
  var_file: z.array(z.object({ contents: z.string() })).default([]),
  env_vars: EnvVars.default({}),
});
export type Config = z.output<typeof Config>;

/** What `plan` saves and `apply` gets back, byte for byte. */
export const SavedPlan = z.object({
  file: z.base64(),
  /** Providers as they were chosen for the plan; apply must use the very same. */
  lock: z.string().nullable(),
});

/** What `terraform output -json` prints. */
export const OutputValues = z.record(
  z.string(),
  z.object({ sensitive: z.boolean(), value: z.json() }),
);

/**
 * Which variables go where. Text goes through the environment, where Terraform reads it by the variable's
 * own type (`["a"]` for a list); a variable that a `var_file` sets too goes into a file that comes after
 * it, because the environment would lose.
 */
export function splitVariables(config: Config) {
  const environment: Record<string, string> = {};
  const file: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(config.vars)) {
    const isSetTwice = config.var_file.some(({ contents }) =>
      contents.split("\n").some((line) => line.split("=")[0]?.trim() === name),
    );
    if (typeof value === "string" && !isSetTwice) environment[`TF_VAR_${name}`] = value;
    else file[name] = value;
  }
  return { environment, file };
}
