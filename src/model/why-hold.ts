/** Why nothing of an install is begun: a pause, a restore, its own limit of parallel jobs. Pure. */

import { endSentence, link, tellNames, tellSince, type Why } from "./why.ts";
import { type AgentFacts, busyJob, type JobName, nameJob, offlineAgent } from "./why-agent.ts";

export interface HoldFacts {
  readonly install: string;
  readonly pause: { readonly reason: string; readonly by: string; readonly since: string } | null;
  /** When the server was restored from a back-up, until the install's agent has told. */
  readonly restoredAt: string | null;
  readonly jobsMax: number | null;
  /** Jobs of its own queue that an agent holds: they count against `jobsMax`. */
  readonly underWay: readonly JobName[];
}

/** What holds the whole install; empty when nothing does. */
export function waitsForHold(hold: HoldFacts, agents: readonly AgentFacts[]): Why[] {
  const subject = { kind: "install" as const, id: hold.install };
  const waits: Why[] = [];
  if (hold.restoredAt !== null) {
    const away = agents.filter(({ connected }) => !connected).map(offlineAgent);
    waits.push(
      link({
        subject,
        wait: "restore",
        state: "restored",
        summary: `The server was restored from a back-up${tellSince(hold.restoredAt)}; the agent of ${hold.install} must tell first what it did in between.`,
        since: hold.restoredAt,
        because: away,
        unblock: [
          `Nothing to do once the agent of ${hold.install} is connected: it tells by itself.`,
        ],
      }),
    );
  }
  if (hold.pause) {
    const { reason, by, since } = hold.pause;
    waits.push(
      link({
        subject,
        wait: "pause",
        state: "paused",
        summary: `${hold.install} was paused by ${by}${tellSince(since)}: ${endSentence(reason)}`,
        since,
        unblock: [`\`landfall installs resume ${hold.install}\`.`],
      }),
    );
  }
  return waits;
}

/** Set when as many jobs are under way as the install allows. */
export function waitForLimit({ install, jobsMax, underWay }: HoldFacts): Why | null {
  if (jobsMax === null || underWay.length < jobsMax) return null;
  return link({
    subject: { kind: "install", id: install },
    wait: "install_limit",
    state: "full",
    summary: `${install} runs at most ${jobsMax} at once, and they are taken, by ${tellNames(underWay.map(nameJob))}.`,
    because: underWay.map(busyJob),
    unblock: [`Allow more at once: \`landfall installs limit ${install} --jobs N\`.`],
  });
}
