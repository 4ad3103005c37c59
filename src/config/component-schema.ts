/**
 * The keys of a component's file: those that every type has, and those of the types that this version
 * can deploy. A type's own keys become the component's `config`, under the format's names.
 */
import { z } from "zod";
import {
  DurationText,
  FolderSource,
  GitSource,
  OperationRoles,
  TextMap,
  VarFiles,
} from "./file-schemas.ts";

const Text = z.string();

/** What is declared of an output: a type's name, or a table that may also say that it is sensitive. */
const OutputDeclaration = z.union([
  Text.transform(() => ({ sensitive: false })),
  z
    .strictObject({
      type: Text.optional(),
      sensitive: z.boolean().default(false),
      description: Text.optional(),
    })
    .transform(({ sensitive }) => ({ sensitive })),
]);

const commonKeys = {
  name: Text,
  type: Text,
  dependencies: z.array(Text).optional(),
  labels: TextMap.optional(),
  var_name: Text.optional(),
  operation_roles: OperationRoles.optional(),
  toggleable: z.boolean().optional(),
  default_enabled: z.boolean().optional(),
  kubernetes_context: Text.optional(),
  build_timeout: DurationText.optional(),
  deploy_timeout: DurationText.optional(),
  drift_schedule: Text.optional(),
  max_auto_retries: z.int().min(0).max(20).optional(),
  skip_noops: z.boolean().optional(),
  auto_approve_on_policies_passing: z.boolean().optional(),
  needs: z.array(Text).optional(),
  outputs: z.record(z.string(), OutputDeclaration).optional(),
  allow_external_images: z.array(Text).optional(),
  source: FolderSource.optional(),
  public_repo: GitSource.optional(),
  connected_repo: GitSource.optional(),
  health: z.looseObject({}).optional(),
};

const Command = z.array(Text).min(1);

const ProcessHealth = z
  .strictObject({
    http: Text.optional(),
    tcp: z.literal(true).optional(),
    command: Command.optional(),
    interval: DurationText.optional(),
    timeout: DurationText.optional(),
    threshold: z.int().min(1).max(1000).optional(),
  })
  .superRefine((health, context) => {
    const ways = (["http", "tcp", "command"] as const).filter((way) => health[way] !== undefined);
    if (ways.length !== 1) {
      context.addIssue({
        code: "custom",
        message: `Expected exactly one of \`http\`, \`tcp\` and \`command\` in \`[health]\`, got ${ways.length}.`,
      });
    }
    if (health.http !== undefined && !health.http.startsWith("/")) {
      context.addIssue({
        code: "custom",
        path: ["http"],
        message: `Expected \`http\` to be a path such as \`/healthz\`, got \`${health.http}\`.`,
      });
    }
  });

const typeKeys: Record<string, z.ZodRawShape> = {
  process: {
    command: Command,
    // 0 = the supervisor picks a port and keeps it.
    port: z.int().min(0).max(65_535).default(0),
    env_vars: TextMap.optional(),
    replicas: z.int().min(1).optional(),
    health: ProcessHealth.optional(),
    restart: z.enum(["always", "never"]).optional(),
  },
  job: { command: Command, env_vars: TextMap.optional(), timeout: DurationText.optional() },
  terraform_module: {
    terraform_version: Text.optional(),
    vars: TextMap.optional(),
    env_vars: TextMap.optional(),
    var_file: VarFiles.optional(),
  },
};

/** The schema of a whole file, or of the common keys alone for a type that only the format knows. */
export function componentSchema(type: string): z.ZodType<ComponentTable> {
  const shape = { ...commonKeys, ...typeKeys[type] };
  // `noop` is steered by whatever its test writes, `[outputs]` with values included.
  const schema =
    type === "noop"
      ? z.looseObject({ ...shape, outputs: z.record(z.string(), z.json()).optional() })
      : z.strictObject(shape);
  return schema as unknown as z.ZodType<ComponentTable>;
}

/** The keys that go into `config`. */
export function configKeys(type: string, table: ComponentTable): string[] {
  const own = typeKeys[type];
  if (own) return Object.keys(own);
  return Object.keys(table).filter((key) => key === "outputs" || !Object.hasOwn(commonKeys, key));
}

/** The keys that every component may have, as they were checked. */
export interface ComponentTable {
  readonly [key: string]: unknown;
  readonly name: string;
  readonly type: string;
  readonly dependencies?: readonly string[];
  readonly needs?: readonly string[];
  readonly outputs?: Readonly<Record<string, unknown>>;
  readonly source?: { readonly path: string };
}
