/**
 * `noop`: does nothing but what its configuration says (wait, fail, crash, give outputs), so that every
 * way in which a job can go may be shown without a real component.
 */
import { appendFile, mkdir, writeFile } from "node:fs/promises";
import { dirname, join, normalize } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import { formatEpoch } from "../../model/job.ts";
import { digestOfJson } from "../../model/json.ts";
import {
  OperationFailure,
  type Plugin,
  type PluginContext,
  PluginCrash,
} from "../../plugin/plugin.ts";
import { parseConfig, requireGiven } from "../../plugin/serve.ts";
import type { PluginRequest } from "../../protocol/plugin-request.ts";

const sleepMsMax = 3_600_000;
const logLinesMax = 1_000_000;

const Config = z.object({
  /** The operations that `sleep_ms`, `log_lines`, `fail` and `exit_code` speak of. */
  on: z.array(z.enum(["build", "plan", "apply", "destroy"])).default(["apply"]),
  sleep_ms: z.coerce.number().min(0).max(sleepMsMax).default(0),
  fail: z.string().optional(),
  exit_code: z.coerce.number().int().min(0).max(255).optional(),
  outputs: z.record(z.string(), z.json()).default({}),
  sensitive_outputs: z.record(z.string(), z.json()).default({}),
  log_lines: z
    .union([z.coerce.number().int().min(0).max(logLinesMax), z.array(z.string())])
    .default(0),
  ledger: z.string().optional(),
  files: z.record(z.string(), z.string()).default({}),
});
type Config = z.output<typeof Config>;

export const plugin: Plugin = {
  sheet: { name: "noop", needs: [], operations: ["build", "plan", "apply", "destroy"] },
  operations: {
    build: (context) => steered(context, writeFiles),
    plan: (context) => steered(context, planConfig),
    apply: (context) => steered(context, giveOutputs),
    destroy: (context) => steered(context, async () => undefined),
  },
};

async function steered(
  context: PluginContext,
  work: (context: PluginContext, config: Config) => Promise<void>,
): Promise<void> {
  const config = parseConfig(Config, context.request);
  const { operation } = context.request;
  // A plan has no side effects, unless it is told to have them.
  const isSilent = operation === "plan" && !config.on.includes("plan");
  const ledger = isSilent ? undefined : config.ledger;
  if (ledger === undefined) return act(context, config, work);
  const lock = await begin(context.request, ledger);
  await act(context, config, work);
  await record(context.request, ledger, "end");
  lock?.close();
}

async function act(
  context: PluginContext,
  config: Config,
  work: (context: PluginContext, config: Config) => Promise<void>,
): Promise<void> {
  if (config.on.some((name) => name === context.request.operation)) await steer(context, config);
  await work(context, config);
}

async function steer(context: PluginContext, config: Config): Promise<void> {
  const lines =
    typeof config.log_lines === "number"
      ? Array.from({ length: config.log_lines }, (_, index) => `line ${index + 1}`)
      : config.log_lines;
  for (const line of lines) context.log(line);
  if (config.sleep_ms > 0) {
    await delay(config.sleep_ms, undefined, { signal: context.signal }).catch((error: unknown) => {
      throw new OperationFailure("The wait was cancelled.", "cancelled", error);
    });
  }
  if (config.exit_code !== undefined) throw new PluginCrash(config.exit_code);
  if (config.fail !== undefined) throw new OperationFailure(config.fail);
}

async function writeFiles({ request }: PluginContext, config: Config): Promise<void> {
  const directory = requireGiven(request.outputDirectory, "outputDirectory");
  for (const [name, text] of Object.entries(config.files)) {
    const path = join(directory, name);
    if (!normalize(path).startsWith(`${normalize(directory)}/`)) {
      throw new OperationFailure(`Expected a file inside the artifact, got \`${name}\`.`);
    }
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }
}

async function planConfig({ request, givePlan }: PluginContext, config: Config): Promise<void> {
  const digest = digestOfJson({ config, artifact: request.artifactDigest });
  const changes = request.state !== digest;
  const names = [...Object.keys(config.outputs), ...Object.keys(config.sensitive_outputs)].sort();
  const diff = changes
    ? [`${request.state === null ? "+" : "~"} noop`, ...names.map((name) => `  output ${name}`)]
    : [];
  givePlan({ plan: { digest }, diff: diff.join("\n"), changes });
}

async function giveOutputs(context: PluginContext, config: Config): Promise<void> {
  for (const [name, value] of Object.entries(config.outputs)) context.giveOutput(name, value);
  for (const [name, value] of Object.entries(config.sensitive_outputs)) {
    context.giveOutput(name, value, { sensitive: true });
  }
  context.saveState(digestOfJson({ config, artifact: context.request.artifactDigest }));
}

type Phase = "start" | "end" | "overlap";

/**
 * Takes the component's lock, which dies with its holder, and writes `start`; where another process
 * that is alive now has the lock, `overlap` comes first: no two of them may ever be alive at once.
 */
async function begin(request: PluginRequest, ledger: string): Promise<DatabaseSync | null> {
  const place = request.install?.id ?? "vendor";
  const lock = new DatabaseSync(`${ledger}.${place}.${request.component.name}.lock`);
  const isTaken = takeLock(lock);
  if (!isTaken) await record(request, ledger, "overlap");
  await record(request, ledger, "start");
  if (isTaken) return lock;
  lock.close();
  return null;
}

function takeLock(lock: DatabaseSync): boolean {
  try {
    lock.exec("pragma busy_timeout = 0; begin exclusive");
    return true;
  } catch {
    return false;
  }
}

/** The ledger tells, in one file for all components, what ran when: order and overlap can be read from it. */
async function record(request: PluginRequest, ledger: string, phase: Phase): Promise<void> {
  const { operation, component, install, job } = request;
  const entry = {
    phase,
    operation,
    component: component.name,
    install: install?.name ?? null,
    job: job.id,
    epoch: formatEpoch(job.epoch),
    pid: process.pid,
    // The machine's own clock, the same for every process on it.
    monotonicMs: Number(process.hrtime.bigint() / 1000n) / 1000,
  };
  await appendFile(ledger, `${JSON.stringify(entry)}\n`);
}
