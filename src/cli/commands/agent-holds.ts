/** `landfall agents drain|undrain|replace|enrol`: taking an agent out of service, and putting another in. */
import { setTimeout as delay } from "node:timers/promises";
import type { Command } from "commander";
import { Fault } from "../../model/fault.ts";
import type { AgentView, InstallView } from "../../protocol/api.ts";
import type { ApiClient } from "../api-client.ts";
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
import { placeEnrolment } from "../enrolment-file.ts";

type DrainOptions = ClientOptions & { install?: string; reason?: string; wait?: boolean };

const pollMs = 500;
const waitMs = 60 * 60 * 1000;

/** Adds the commands. */
export function addAgentHoldCommands(agents: Command, context: CliContext): void {
  addDrain(agents, context);
  addUndrain(agents, context);
  addReplace(agents, context);
  addEnrol(agents, context);
}

function addDrain(agents: Command, context: CliContext): void {
  const drain = agents
    .command("drain")
    .description("give an agent nothing new; what it runs it finishes")
    .argument("[agent]", "the agent's id, as `landfall agents` shows it")
    .option("--install <name>", "the agent of this install")
    .option("--reason <text>", "why, for everyone to see")
    .option("--wait", "until it holds no job");
  withExamples(withJson(withServerOptions(drain)), [
    'agents drain --install acme --reason "new machine" --wait',
    "agents drain AGENT",
  ]);
  drain.action(async (agent: string | undefined, _own: object, command: Command) => {
    const options = optionsOf<DrainOptions>(command);
    const client = await openClient(context, options);
    const id = await findAgent(client, agent, options.install);
    const begun = await client.drainAgent(id, options.reason);
    const view = options.wait ? await awaitIdle(context, client, begun) : begun;
    if (options.json) return printJson(context, view);
    const rest =
      view.jobs === 0
        ? "It holds no job: it can be stopped."
        : `It still holds ${countJobs(view.jobs)}. Wait for them with \`--wait\`.`;
    printLines(context, [
      `Agent ${id} is draining. ${rest} Back: \`landfall agents undrain ${id}\`.`,
    ]);
  });
}

function addUndrain(agents: Command, context: CliContext): void {
  const undrain = agents
    .command("undrain")
    .description("let a draining agent take jobs again")
    .argument("[agent]", "the agent's id")
    .option("--install <name>", "the agent of this install");
  withExamples(withJson(withServerOptions(undrain)), [
    "agents undrain --install acme",
    "agents undrain AGENT",
  ]);
  undrain.action(async (agent: string | undefined, _own: object, command: Command) => {
    const options = optionsOf<DrainOptions>(command);
    const client = await openClient(context, options);
    const view = await client.undrainAgent(await findAgent(client, agent, options.install));
    if (options.json) return printJson(context, view);
    printLines(context, [`Agent ${view.id} takes jobs.`]);
  });
}

function addReplace(agents: Command, context: CliContext): void {
  const replace = agents
    .command("replace")
    .description("revoke an install's agent for good, and make a code for a new one")
    .argument("<install>", "the install's name")
    .option("--yes", "do not ask");
  withExamples(withJson(withServerOptions(replace)), [
    "agents replace acme",
    "agents replace acme --yes --json",
  ]);
  replace.action(async (name: string, _own: object, command: Command) => {
    const options = optionsOf<ClientOptions & { yes?: boolean }>(command);
    const client = await openClient(context, options);
    const install = await client.install(name);
    if (!options.yes) await confirmReplace(context, install);
    const answer = await client.replaceAgent(name);
    if (options.json) return printJson(context, answer);
    printLines(context, [answer.code]);
    context.terminal.note(`${nextSteps(install, client.url, answer.expiresAt).join("\n")}\n`);
  });
}

/** Writes the code where an agent looks for it: the only command that needs no server. */
function addEnrol(agents: Command, context: CliContext): void {
  const enrol = agents
    .command("enrol")
    .description(
      "put an enrolment code into the folder of an agent that is stopped, on its machine",
    )
    .requiredOption("--directory <dir>", "the agent's folder: where its config.json is")
    .requiredOption("--code <code>", "the code that `agents replace` or `agents code` gave")
    .option("--server <url>", "the server's address, as the agent reaches it");
  withExamples(withJson(enrol), [
    "agents enrol --directory DIR --code CODE --server https://landfall.example",
  ]);
  enrol.action(async (_own: object, command: Command) => {
    const { server, ...options } = optionsOf<ClientOptions & { directory: string; code: string }>(
      command,
    );
    // Not a required option: `agents` has one of this name too, and Commander gives it to that one.
    if (server === undefined) {
      throw new Fault(
        "invalid",
        "Expected `--server URL`, the server as the agent reaches it, got none.",
      );
    }
    const placed = await placeEnrolment(context.cwd, { ...options, server }, context.now());
    if (options.json) return printJson(context, placed);
    printLines(context, [
      `The code is in \`${placed.file}\`. Start the agent: it enrols, and deletes the file.`,
      ...(placed.setAside === null
        ? []
        : [
            `Its old identity was set aside as \`${placed.setAside}\`; delete it once the new one works.`,
          ]),
    ]);
  });
}

/** `agents` has options of its own, and Commander gives it those that its commands share with it. */
function optionsOf<Options>(command: Command): Options {
  return command.optsWithGlobals<Options & Record<string, unknown>>();
}

async function findAgent(
  client: ApiClient,
  agent: string | undefined,
  install: string | undefined,
): Promise<string> {
  if ((agent === undefined) === (install === undefined)) {
    throw new Fault(
      "invalid",
      `Expected an agent's id or \`--install NAME\`, got ${agent === undefined ? "neither" : "both"}. List agents with \`landfall agents\`.`,
    );
  }
  if (agent !== undefined) return agent;
  const view = await client.install(install ?? "");
  if (view.agent) return view.agent.id;
  throw new Fault(
    "conflict",
    `Expected an install with an agent, but \`${view.name}\` has none. See \`landfall why ${view.name}\`.`,
  );
}

/** Polls until the agent holds nothing; tells whenever the number changed. */
async function awaitIdle(
  context: CliContext,
  client: ApiClient,
  begun: AgentView,
): Promise<AgentView> {
  const deadline = performance.now() + waitMs;
  let view = begun;
  for (let told = -1; view.jobs > 0; view = await client.agent(view.id)) {
    if (view.jobs !== told) {
      const where = view.connected
        ? ""
        : " It is away: they go on there, and end here when it is back.";
      context.terminal.note(`Agent ${view.id} holds ${countJobs(view.jobs)}.${where}\n`);
      told = view.jobs;
    }
    if (performance.now() > deadline) {
      throw new Fault(
        "unavailable",
        `Expected agent ${view.id} to hold no job within an hour, but it holds ${countJobs(view.jobs)}. It goes on draining; see \`landfall jobs list --state running\`.`,
      );
    }
    await delay(pollMs);
  }
  return view;
}

async function confirmReplace(context: CliContext, install: InstallView): Promise<void> {
  const { name, agent } = install;
  const running = agent?.jobs ?? 0;
  const lines = [
    `This replaces the agent of \`${name}\`${agent ? ` (${agent.id}, ${agent.connected ? "connected" : "away"})` : ""}:`,
    "  • its key is revoked for good: it is cut off now, and can never come back;",
    `  • what it still runs (${countJobs(running)}) is adopted by the new agent where that finds it, and ended or`,
    "    tried again otherwise; until then nothing of those components starts;",
    "  • a machine that is only cut off may go on changing things until what runs there has ended: stop",
    "    it first if you can.",
  ];
  context.terminal.note(`${lines.join("\n")}\n`);
  const answer = await context.terminal.ask(`Type \`${name}\` to go on: `);
  if (answer === null) {
    throw new Fault(
      "invalid",
      "Expected `--yes`, since nobody is here to be asked, got none. Nothing was changed.",
    );
  }
  if (answer.trim() !== name) {
    throw new Fault(
      "conflict",
      `Expected \`${name}\`, got \`${answer.trim()}\`. Nothing was changed.`,
    );
  }
}

function nextSteps(install: InstallView, url: string, expiresAt: string): string[] {
  return [
    `The old agent of \`${install.name}\` is revoked. The code above is good until ${expiresAt}, for one agent.`,
    "On the machine of the new agent, while it is stopped:",
    "  landfall agents enrol --directory DIR --code CODE --server URL",
    `DIR is the agent's folder, where its config.json is (with \`landfall dev\`: .landfall/installs/${install.id}/agent),`,
    `URL the server as it reaches it (from here: ${url}). By hand: {"code": "CODE"} into the file that \`enrolmentFile\``,
    "in config.json names, and identity.json of the old agent out of the way. In the old agent's own folder the new",
    "one finds what still runs, and adopts it. Then start the agent.",
  ];
}

function countJobs(count: number): string {
  return count === 1 ? "1 job" : `${count} jobs`;
}
