/**
 * The app under fire: `noop` components in a random graph. Every round changes one value of each, so
 * every install plans and applies all of them; some get a new artifact too, which is copied first.
 */
import type { AppConfig, ComponentConfig } from "../../src/model/app-config.ts";
import type { Json, JsonObject } from "../../src/model/json.ts";
import type { Random } from "./random.ts";
import { createRandom } from "./random.ts";

export const appName = "chaos";

export interface AppOptions {
  readonly seed: string;
  readonly components: number;
  readonly round: number;
  /** The file that every plugin writes to. */
  readonly ledger: string;
}

const dependenciesMax = 3;
/** How far back a component looks for what it depends on: it makes the graph about so wide. */
const window = 6;
const position = { file: "chaos", line: 1, column: 1 };

/** The app as it is in a round; the graph is the seed's. */
export function describeApp(options: AppOptions): AppConfig {
  const graph = createRandom(`${options.seed}/graph`);
  const turn = createRandom(`${options.seed}/${options.round}/app`);
  const names = Array.from({ length: options.components }, (_, index) => nameOf(index));
  const components = names.map((name, index) => {
    const near = names.slice(Math.max(0, index - window), index);
    const count = graph.between(0, Math.min(dependenciesMax, near.length));
    const dependencies = graph.shuffle(near).slice(0, count).sort();
    return componentOf(options, turn, name, dependencies);
  });
  return {
    name: appName,
    displayName: "Chaos",
    description: "Components that do nothing, under fire.",
    sandbox: { type: "local", config: {} },
    inputs: [],
    components,
  };
}

/** What a component gives when it is at this round. */
export function expectedOutputs(component: ComponentConfig, round: number): Record<string, Json> {
  const [first] = component.dependencies;
  return { round: String(round), ...(first ? { seen: `${first} at ${round}` } : {}) };
}

function nameOf(index: number): string {
  return `c${String(index).padStart(2, "0")}`;
}

function componentOf(
  { round, ledger }: AppOptions,
  random: Random,
  name: string,
  dependencies: readonly string[],
): ComponentConfig {
  const [first] = dependencies;
  const outputs: JsonObject = {
    round: String(round),
    ...(first ? { seen: `${first} at {{ .nuon.components.${first}.outputs.round }}` } : {}),
  };
  // A few long ones, so that programs die in the middle of them.
  const sleepMs = random.chance(0.15) ? random.between(1000, 4000) : random.between(0, 200);
  const stamp = random.chance(0.25) ? String(round) : "0";
  return {
    name,
    type: "noop",
    dependencies,
    source: null,
    config: {
      on: ["plan", "apply"],
      outputs,
      ledger,
      sleep_ms: sleepMs,
      log_lines: random.chance(0.1) ? 400 : random.between(1, 20),
      files: { stamp },
    },
    outputs: Object.fromEntries(Object.keys(outputs).map((key) => [key, { sensitive: false }])),
    needs: [],
    position,
  };
}
