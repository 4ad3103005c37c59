/** `landfall agents`: who has enrolled, who is connected, what they hold, and codes for new ones. */
import type { Command } from "commander";
import type { AgentView } from "../../protocol/api.ts";
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
import { type Cell, formatTable } from "../table.ts";
import { addAgentHoldCommands } from "./agent-holds.ts";

/** Adds the command. */
export function addAgentsCommand(program: Command, context: CliContext): void {
  const command = program
    .command("agents")
    .description("list agents and whether they are connected");
  withExamples(withJson(withServerOptions(command)), [
    "agents",
    "agents --json",
    "agents code",
    "agents drain --install acme --wait",
  ]);
  addCodeCommand(command, context);
  addAgentHoldCommands(command, context);
  command.action(async (options: ClientOptions) => {
    const agents = await (await openClient(context, options)).agents();
    if (options.json) return printJson(context, { agents });
    const { terminal } = context;
    const rows = agents.map((agent) => agentRow(agent, context.now()));
    printLines(
      context,
      formatTable(["id", "role", "install", "state", "jobs", "seen", "version", "detail"], rows, {
        width: terminal.width(),
        colours: terminal.colours,
      }),
    );
  });
}

/** The code is the answer: it is printed once, and kept nowhere. */
function addCodeCommand(agents: Command, context: CliContext): void {
  const command = agents
    .command("code")
    .description("make a one-time code that a new agent enrols with, good for 15 minutes")
    .option("--install <name>", "for the agent of this install; without it, for a build agent");
  withExamples(withJson(withServerOptions(command)), ["agents code", "agents code --install acme"]);
  command.action(async (_own: object, { parent }: Command) => {
    const options: ClientOptions & { install?: string } = {
      ...parent?.opts(),
      ...command.opts(),
    };
    const client = await openClient(context, options);
    const answer = await client.createCode(options.install ?? null);
    if (options.json) return printJson(context, answer);
    printLines(context, [answer.code]);
    context.terminal.note(`Good until ${answer.expiresAt}, for one agent.\n`);
  });
}

function agentRow(agent: AgentView, now: Date): Cell[] {
  const state: Cell = agent.revoked
    ? { text: "revoked", tone: "dim" }
    : !agent.connected
      ? { text: "away", tone: "bad" }
      : agent.drain
        ? { text: "draining", tone: "busy" }
        : { text: "connected", tone: "good" };
  const seen = agent.connected ? "now" : formatAge(agent.seenAt, now);
  const drain =
    agent.drain && !agent.revoked
      ? `draining since ${formatAge(agent.drain.since, now)}: ${agent.drain.reason}`
      : agent.generation > 1
        ? `generation ${agent.generation}`
        : "";
  return [
    agent.id,
    agent.role,
    agent.install ?? "–",
    state,
    String(agent.jobs),
    seen,
    agent.version ?? "–",
    drain,
  ];
}
