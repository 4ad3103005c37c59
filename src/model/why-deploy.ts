/** Why a deploy, or an install as a whole, is where it is. Pure. */
import { isAtRest } from "./component-states.ts";
import { earliest, type FirstCause, link, tellCause, tellNames, type Why } from "./why.ts";
import { waitsForAgents } from "./why-agent.ts";
import { waitsForHold } from "./why-hold.ts";
import {
  beginTelling,
  type ComponentFacts,
  decisionWait,
  type InstallFacts,
  releaseWait,
  sandboxWait,
  type Telling,
  whyComponent,
} from "./why-install.ts";

/** Why an install is where it is. */
export function whyInstall(install: InstallFacts, now: Date): Why {
  const telling = beginTelling(install, now);
  const base = { subject: { kind: "install" as const, id: install.name } };
  if (install.state === "deleted") {
    return link({ ...base, state: "deleted", summary: `${install.name} is deleted.` });
  }
  const { verdict, because, firstCause } = judge(telling);
  const holds = waitsForHold(install.hold, install.agents);
  if (verdict === "done") {
    const away = install.agents.flatMap((agent) =>
      agent.connected
        ? []
        : waitsForAgents({ install: install.name, agents: [agent], replaced: null }),
    );
    const summary = `${install.name} is ${install.state} at release ${install.releaseNumber ?? "–"}, with nothing left to do.`;
    const held = holds[0] ? ` ${holds[0].summary}` : "";
    const state = install.hold.pause ? "paused" : install.state;
    return link({ ...base, state, summary: summary + held, because: [...holds, ...away] });
  }
  const state =
    verdict === "failed"
      ? "failed"
      : install.hold.pause
        ? "paused"
        : install.state === "active"
          ? "deploying"
          : install.state;
  return link({
    ...base,
    state,
    summary: `${install.name} is ${state}: ${sentenceOf(install, because, firstCause, verdict)}`,
    because,
    firstCause,
    since: because[0]?.since ?? null,
  });
}

/** Why a deploy is where it is; `failures` are those of that deploy. */
export function whyDeploy(
  install: InstallFacts,
  { number, failures }: { number: number; failures: readonly FirstCause[] },
  now: Date,
): Why {
  const base = { subject: { kind: "deploy" as const, id: `${install.name} ${number}` } };
  const name = `Deploy ${number} of ${install.name}`;
  const own = earliest(failures);
  if (number < install.deploy) {
    const how = own ? ` It had failed: ${tellCause(own)}` : "";
    const summary = `${name} is over: deploy ${install.deploy} took its place.${how}`;
    return link({ ...base, state: "superseded", summary, firstCause: own });
  }
  const telling = beginTelling(install, now);
  const { verdict, because, firstCause } = judge(telling);
  if (verdict === "done" || install.state === "deleted") {
    const what = install.state === "deleted" ? "everything is removed" : "everything is at rest";
    return link({ ...base, state: "done", summary: `${name} is done: ${what}.` });
  }
  const cause = earliest([
    ...(firstCause ? [firstCause] : []),
    ...(verdict === "failed" && own ? [own] : []),
  ]);
  return link({
    ...base,
    state: verdict,
    summary: `${name} ${verdict === "failed" ? "failed" : "is under way"}: ${sentenceOf(install, because, cause, verdict)}`,
    because,
    firstCause: cause,
    since: because[0]?.since ?? null,
  });
}

interface Judgement {
  readonly verdict: "done" | "failed" | "under_way";
  readonly because: readonly Why[];
  readonly firstCause: FirstCause | null;
}

function judge(telling: Telling): Judgement {
  const { install } = telling;
  const open = install.components.filter(({ state }) => !isAtRest(state));
  const failed = open.filter(({ state }) => state === "failed");
  const firstCause = earliest([
    ...failed.flatMap(({ failure }) => failure ?? []),
    ...(install.sandbox.failure ? [install.sandbox.failure] : []),
  ]);
  const isWhole = install.state === "active" && install.releaseNumber !== null;
  const busySandbox = install.sandbox.job !== null || install.sandbox.failure !== null;
  if (open.length === 0 && isWhole && !install.due && !busySandbox) {
    return { verdict: "done", because: [], firstCause: null };
  }
  const verdict = install.settled && firstCause !== null ? "failed" : "under_way";
  return { verdict, because: reasons(telling, open), firstCause };
}

/** The roots: what merely waits for another component is told under that one's name, or not at all. */
function reasons(telling: Telling, open: readonly ComponentFacts[]): Why[] {
  const { install } = telling;
  const holds = waitsForHold(install.hold, install.agents);
  const waits = [...holds];
  const isLast = install.state === "deleting" && open.length === 0;
  if (
    install.state === "provisioning" ||
    install.sandbox.job ||
    install.sandbox.failure ||
    isLast
  ) {
    waits.push(sandboxWait(telling));
  }
  if (install.releaseNumber === null && install.state !== "deleting")
    waits.push(releaseWait(telling));
  const names = new Set(open.map(({ name }) => name));
  const blocks = (name: string) => names.has(name);
  const roots = open.filter((component) => {
    if (component.state === "failed" || component.job) return true;
    if (waits.length > 0) return false;
    return component.leaving
      ? !open.some((other) => other.dependencies.includes(component.name))
      : !component.dependencies.some(blocks);
  });
  const told = roots.length > 0 || waits.length > 0 ? roots : open;
  for (const { name } of told) {
    const why = whyComponent(telling, name);
    const wait = install.state === "deleting" ? "removal" : "dependency";
    if (why) waits.push({ ...why, wait });
  }
  return waits.length > 0 ? waits : [decisionWait(install)];
}

function sentenceOf(
  install: InstallFacts,
  because: readonly Why[],
  firstCause: FirstCause | null,
  verdict: Judgement["verdict"],
): string {
  const open = install.components.filter(({ state }) => !isAtRest(state)).map(({ name }) => name);
  const left = open.length > 0 ? ` Not at rest: ${tellNames(open)}.` : "";
  if (verdict === "failed" && firstCause) return `${tellCause(firstCause)}${left}`;
  return `${because[0]?.summary ?? ""}${left}`;
}
