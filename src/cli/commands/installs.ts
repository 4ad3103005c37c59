/** `landfall installs list|show|create|delete`; `pause`, `resume` and `limit` are in `install-holds.ts`. */
import type { Command } from "commander";
import { Fault } from "../../model/fault.ts";
import type { ComponentView, InstallView } from "../../protocol/api.ts";
import {
  type ClientOptions,
  openClient,
  printJson,
  printLines,
  withExamples,
  withJson,
  withServerOptions,
} from "../command-options.ts";
import type { CliContext } from "../context.ts";
import { formatAge } from "../duration.ts";
import { followInstall } from "../install-follow.ts";
import { failedComponents } from "../install-judgement.ts";
import { type Cell, formatTable } from "../table.ts";
import type { Tone } from "../terminal.ts";
import { addHoldCommands } from "./install-holds.ts";

type CreateOptions = ClientOptions & { app: string; input: Record<string, string>; wait: boolean };
type DeleteOptions = ClientOptions & { yes?: boolean; wait: boolean };

const digestLength = "sha256:".length + 12;

/** Adds the commands. */
export function addInstallsCommand(program: Command, context: CliContext): void {
  const installs = program
    .command("installs")
    .description("list, show, create, pause and delete installs");
  withExamples(installs, [
    "installs list",
    "installs show demo",
    "installs create acme --app guestbook --input title=Hello",
    'installs pause acme --reason "their audit"',
    "installs delete acme",
  ]);
  addList(installs, context);
  addShow(installs, context);
  addCreate(installs, context);
  addHoldCommands(installs, context);
  addDelete(installs, context);
}

function addList(installs: Command, context: CliContext): void {
  const list = installs.command("list", { isDefault: true }).description("list installs");
  withExamples(withJson(withServerOptions(list)), ["installs list", "installs list --json"]);
  list.action(async (options: ClientOptions) => {
    const found = await (await openClient(context, options)).installs();
    if (options.json) return printJson(context, { installs: found });
    const headings = ["name", "app", "state", "release", "components", "agent", "age", "pause"];
    printTable(
      context,
      headings,
      found.map((install) => installRow(install, context.now())),
    );
  });
}

function addShow(installs: Command, context: CliContext): void {
  const show = installs
    .command("show")
    .description("show one install and its components")
    .argument("<name>", "the install's name");
  withExamples(withJson(withServerOptions(show)), [
    "installs show demo",
    "installs show demo --json",
  ]);
  show.action(async (name: string, options: ClientOptions) => {
    const install = await (await openClient(context, options)).install(name);
    if (options.json) return printJson(context, install);
    const agent = nameAgentState(install);
    const version = install.agent?.version ? ` (${install.agent.version})` : "";
    printLines(context, [
      `${install.name}  (${install.id}, app ${install.app}, sandbox ${install.sandboxType})`,
      `state ${install.state}, release ${install.releaseNumber ?? "none yet"}, deploy ${install.deploy}, agent ${agent}${version}`,
      ...describeHolds(install, context.now()),
      ...(install.reason === null ? [] : [`sandbox: ${install.reason}`]),
      "",
    ]);
    printTable(
      context,
      ["component", "type", "state", "artifact", "detail"],
      install.components.map(componentRow),
    );
  });
}

function addCreate(installs: Command, context: CliContext): void {
  const create = installs
    .command("create")
    .description("create an install of an app, and deploy its newest release")
    .argument("<name>", "a new name: letters, digits and dashes")
    .requiredOption("--app <name>", "the app")
    .option("--input <key=value>", "the value of an input; may be repeated", collectInput, {})
    .option("--no-wait", "do not wait until it is deployed");
  withExamples(withJson(withServerOptions(create)), [
    "installs create acme --app guestbook",
    "installs create acme --app guestbook --input title=Hello --no-wait",
  ]);
  create.action(async (name: string, options: CreateOptions) => {
    const client = await openClient(context, options);
    const install = await client.createInstall({ app: options.app, name, inputs: options.input });
    await followInstall(context, client, install, { ...options, done: "is deployed" });
  });
}

function addDelete(installs: Command, context: CliContext): void {
  const remove = installs
    .command("delete")
    .description("remove an install: every component, dependents first, then its sandbox")
    .argument("<name>", "the install's name")
    .option("--yes", "do not ask")
    .option("--no-wait", "do not wait until it is gone");
  withExamples(withJson(withServerOptions(remove)), [
    "installs delete acme",
    "installs delete acme --yes",
  ]);
  remove.action(async (name: string, options: DeleteOptions) => {
    const client = await openClient(context, options);
    const install = await client.install(name);
    if (!options.yes) await confirmDelete(context, install);
    const deleting = await client.deleteInstall(name);
    await followInstall(context, client, deleting, { ...options, done: "is deleted" });
  });
}

async function confirmDelete(context: CliContext, install: InstallView): Promise<void> {
  const count = install.components.length;
  const answer = await context.terminal.ask(
    `This removes \`${install.name}\` with its ${count} components and all their data. Type its name to go on: `,
  );
  if (answer === null) {
    throw new Fault(
      "invalid",
      `Expected \`--yes\`, since nobody is here to be asked, got none. Nothing was deleted.`,
    );
  }
  if (answer.trim() !== install.name) {
    throw new Fault(
      "conflict",
      `Expected \`${install.name}\`, got \`${answer.trim()}\`. Nothing was deleted.`,
    );
  }
}

/** Adds one `key=value` to those before it. */
export function collectInput(
  text: string,
  before: Readonly<Record<string, string>>,
): Record<string, string> {
  const at = text.indexOf("=");
  if (at < 1) throw new Fault("invalid", `Expected \`--input key=value\`, got \`${text}\`.`);
  const key = text.slice(0, at);
  if (Object.hasOwn(before, key)) {
    throw new Fault(
      "invalid",
      `Expected one value for the input \`${key}\`, got two. Give it once.`,
    );
  }
  return { ...before, [key]: text.slice(at + 1) };
}

function printTable(
  context: CliContext,
  headings: readonly string[],
  rows: readonly Cell[][],
): void {
  const { terminal } = context;
  const settings = { width: terminal.width(), colours: terminal.colours };
  printLines(context, formatTable(headings, rows, settings));
}

function installRow(install: InstallView, now: Date): Cell[] {
  const failed = failedComponents(install).length;
  const active = install.components.filter(({ state }) => state === "active").length;
  const components = `${active}/${install.components.length} active${failed > 0 ? `, ${failed} failed` : ""}`;
  const agent = nameAgentState(install);
  const state: Cell = install.pause
    ? { text: `${install.state}, paused`, tone: "busy" }
    : { text: install.state, tone: install.state === "active" ? "good" : "busy" };
  return [
    install.name,
    install.app,
    state,
    String(install.releaseNumber ?? "–"),
    { text: components, tone: failed > 0 ? "bad" : "plain" },
    { text: agent, tone: agent === "away" ? "bad" : "plain" },
    formatAge(install.createdAt, now),
    install.pause?.reason ?? "",
  ];
}

function nameAgentState({ agent }: InstallView): string {
  if (agent === null) return "none yet";
  if (!agent.connected) return "away";
  return agent.draining === null ? "connected" : "draining";
}

/** What holds the install, one line each. */
function describeHolds(install: InstallView, now: Date): string[] {
  const { pause, restoredAt, jobsMax, agent, name, conflicts } = install;
  const lines: string[] = [];
  if (conflicts.length > 0) {
    lines.push(
      `conflicts: ${conflicts.length} values of older tries were refused and kept aside; see \`landfall installs conflicts ${name}\``,
    );
  }
  if (pause) {
    lines.push(
      `paused by ${pause.by} ${formatAge(pause.since, now)}: ${pause.reason}`,
      `  no job is made or begun until \`landfall installs resume ${name}\``,
    );
  }
  if (restoredAt !== null) lines.push("held: the server was restored; its agent must tell first");
  if (jobsMax !== null) lines.push(`limit: at most ${jobsMax} of its jobs at once`);
  if (agent && agent.jobs > 0) lines.push(`jobs: its agent holds ${agent.jobs}`);
  if (agent?.draining) lines.push(`draining: ${agent.draining}`);
  if (agent && !agent.connected)
    lines.push(`agent away: last seen ${formatAge(agent.seenAt, now)}`);
  return lines;
}

function componentRow(component: ComponentView): Cell[] {
  return [
    component.name,
    component.type,
    { text: component.state, tone: toneOfComponent(component.state) },
    component.artifactDigest?.slice(0, digestLength) ?? "–",
    component.reason ?? describeOutputs(component),
  ];
}

/** Outputs as people read them; of a sensitive one, only that it is there. */
function describeOutputs(component: ComponentView): string {
  return Object.entries(component.outputs)
    .map(([name, output]) => {
      if (output.sensitive) return `${name}=***`;
      return `${name}=${typeof output.value === "string" ? output.value : JSON.stringify(output.value)}`;
    })
    .join(" ");
}

function toneOfComponent(state: ComponentView["state"]): Tone {
  if (state === "active") return "good";
  if (state === "failed") return "bad";
  return state === "waiting" || state === "disabled" || state === "removed" ? "dim" : "busy";
}
