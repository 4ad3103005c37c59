/** Why an agent takes no job now: it is not there, not connected, draining, replaced or full. Pure. */
import type { Operation } from "./job.ts";
import { endSentence, link, tellNames, tellSince, type Why } from "./why.ts";

/** A job as others refer to it. */
export interface JobName {
  readonly id: string;
  readonly operation: Operation;
  readonly component: string | null;
  readonly install: string | null;
  readonly state: string;
  readonly since: string | null;
}

export interface AgentFacts {
  readonly id: string;
  /** Null for a build agent. */
  readonly install: string | null;
  readonly connected: boolean;
  /** When it was last heard of. */
  readonly seenAt: string | null;
  readonly draining: { readonly reason: string; readonly since: string } | null;
  readonly revokedAt: string | null;
  /** How many jobs it runs at once; null when it has not told. */
  readonly slots: number | null;
  readonly holds: readonly JobName[];
}

/** Who may run the jobs of a queue. */
export interface QueueAgents {
  /** The install whose queue it is; null for the vendor's own, which builds and provisions. */
  readonly install: string | null;
  /** Agents that count. */
  readonly agents: readonly AgentFacts[];
  /** The agent that was there before, when a person revoked it and no other has enrolled since. */
  readonly replaced: { readonly id: string; readonly revokedAt: string } | null;
}

/** `apply of web in acme`. */
export function nameJob(job: Pick<JobName, "operation" | "component" | "install">): string {
  const what = `${job.operation} of ${job.component ?? "the sandbox"}`;
  return job.install === null ? what : `${what} in ${job.install}`;
}

/** Empty when one of them could take a job right now. */
export function waitsForAgents({ install, agents, replaced }: QueueAgents): Why[] {
  if (agents.length === 0) return [missingAgent(install, replaced)];
  const ready = agents.filter(({ connected, draining }) => connected && !draining);
  if (ready.length === 0) return agents.flatMap(unready);
  const hasRoom = ready.some(({ slots, holds }) => slots === null || holds.length < slots);
  return hasRoom ? [] : ready.map(fullAgent);
}

/** Why nothing is heard of the agent that holds a job. */
export function offlineAgent(agent: AgentFacts): Why {
  const { install } = agent;
  return link({
    subject: { kind: "agent", id: agent.id },
    wait: "agent_offline",
    state: "offline",
    summary: `${nameAgent(agent)} has been away${tellSince(agent.seenAt)}.`,
    since: agent.seenAt,
    unblock: [
      `Bring ${nameAgent(agent)} back: see that its machine is up and reaches the server.`,
      ...(install === null
        ? ["Start another build agent: `landfall agents code`."]
        : [`If it is gone for good: \`landfall agents replace ${install}\`.`]),
    ],
  });
}

/** A person revoked the agent that holds a job: its successor must say what it found. */
export function replacedAgent(agent: AgentFacts, successors: QueueAgents): Why {
  const name = nameAgent(agent);
  const [successor] = successors.agents;
  const next = successor
    ? successor.connected
      ? []
      : [offlineAgent(successor)]
    : [missingAgent(agent.install, { id: agent.id, revokedAt: agent.revokedAt ?? "" })];
  return link({
    subject: { kind: "agent", id: agent.id },
    wait: "agent_replaced",
    state: "revoked",
    summary: `${name} was replaced${tellSince(agent.revokedAt)}; the new agent adopts the job or ends it when it connects.`,
    since: agent.revokedAt,
    because: next,
    unblock: next.length > 0 ? [] : ["Nothing to do: the new agent is connected and tells."],
  });
}

/** `Agent agt_… of acme`. */
export function nameAgent({ id, install }: Pick<AgentFacts, "id" | "install">): string {
  return install === null ? `build agent ${id}` : `agent ${id} of ${install}`;
}

function missingAgent(install: string | null, replaced: QueueAgents["replaced"]): Why {
  const subject = { kind: "agent" as const, id: install ?? "build" };
  if (replaced) {
    const again =
      install === null ? "" : ` Ask for another code: \`landfall agents replace ${install}\`.`;
    return link({
      subject,
      wait: "agent_replaced",
      state: "missing",
      summary: `Agent ${replaced.id} was replaced${tellSince(replaced.revokedAt || null)}, and the new one has not enrolled yet.`,
      since: replaced.revokedAt || null,
      unblock: [`Start the new agent with the code that was made for it.${again}`],
    });
  }
  const whose = install === null ? "No build agent has" : `No agent of ${install} has`;
  return link({
    subject,
    wait: "agent_missing",
    state: "missing",
    summary: `${whose} enrolled yet.`,
    unblock: [
      install === null
        ? "Start a build agent: `landfall agents code` gives the code that it enrols with."
        : `Start the agent of ${install}; a new code: \`landfall agents code --install ${install}\`.`,
    ],
  });
}

function unready(agent: AgentFacts): Why[] {
  const draining = agent.draining ? [drainingAgent(agent, agent.draining)] : [];
  return agent.connected ? draining : [offlineAgent(agent), ...draining];
}

function drainingAgent(
  agent: AgentFacts,
  { reason, since }: { reason: string; since: string },
): Why {
  return link({
    subject: { kind: "agent", id: agent.id },
    wait: "agent_draining",
    state: "draining",
    summary: `${nameAgent(agent)} is draining${tellSince(since)}, and takes nothing new: ${endSentence(reason)}`,
    since,
    unblock: [`\`landfall agents undrain ${agent.id}\`.`],
  });
}

function fullAgent(agent: AgentFacts): Why {
  const jobs = agent.holds.map(busyJob);
  return link({
    subject: { kind: "agent", id: agent.id },
    wait: "agent_full",
    state: "full",
    summary: `All ${agent.slots} slots of ${nameAgent(agent)} are taken, by ${tellNames(agent.holds.map(nameJob))}.`,
    because: jobs,
    unblock: ["Wait until one of the jobs that it runs has ended, or cancel one."],
  });
}

/** A job that is in the way of another, told in one line. */
export function busyJob(job: JobName): Why {
  return link({
    subject: { kind: "job", id: job.id },
    wait: "job",
    state: job.state,
    summary: `${nameJob(job)} is ${job.state}${tellSince(job.since)}.`,
    since: job.since,
    unblock: [`Wait for ${nameJob(job)}, or stop it: \`landfall jobs cancel ${job.id}\`.`],
  });
}
