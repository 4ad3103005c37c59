/** What `landfall dev` says at the end: for people, and with `--once` for programs; pure. */
import type { InstallView, JobView } from "../../protocol/api.ts";
import { formatBytes, formatDuration } from "../duration.ts";
import { type Cell, formatTable } from "../table.ts";
import { paint } from "../terminal.ts";
import type { AppAddress, AppAnswer } from "./app-address.ts";

/** How long each phase took, in the order in which they began. */
export type Phases = Readonly<Record<string, number>>;

export interface Run {
  readonly ok: boolean;
  readonly readyMs: number;
  readonly reason: string | null;
  readonly install: InstallView | null;
  /** Made in this run. */
  readonly jobs: readonly JobView[];
  readonly answers: readonly AppAnswer[];
  readonly phases: Phases;
}

/** The last line of `--once`: one JSON object. */
export function summaryJson(run: Run): string {
  const components = run.install?.components ?? [];
  return JSON.stringify({
    ok: run.ok,
    ready_ms: Math.round(run.readyMs),
    ...(run.reason !== null && { reason: run.reason }),
    install: run.install?.name ?? null,
    release: run.install?.releaseNumber ?? null,
    components: components.map(({ name, type, state, reason, artifactDigest }) => ({
      name,
      type,
      state,
      ...(reason !== null && { reason }),
      artifact: artifactDigest,
    })),
    jobs: run.jobs.length,
    artifacts: new Set(components.flatMap(({ artifactDigest }) => artifactDigest ?? [])).size,
    bytes_copied: bytesCopied(run.jobs),
    answers: run.answers.map(({ component, url, path, ok }) => ({ component, url, path, ok })),
    phases: Object.fromEntries(
      Object.entries(run.phases).map(([name, ms]) => [name, Math.round(ms)]),
    ),
  });
}

/** The table above it: one line per component, and a line for the whole. */
export function summaryTable(run: Run, settings: { width: number; colours: boolean }): string[] {
  const rows = (run.install?.components ?? []).map((component): Cell[] => [
    component.name,
    component.type,
    {
      text: component.state,
      tone: component.state === "active" ? "good" : component.state === "failed" ? "bad" : "dim",
    },
    String(run.jobs.filter((job) => job.component === component.name).length),
    component.reason ?? addressText(run.answers, component.name),
  ]);
  const phases = Object.entries(run.phases).map(([name, ms]) => `${name} ${formatDuration(ms)}`);
  return [
    ...formatTable(["component", "type", "state", "jobs", "detail"], rows, settings),
    "",
    `${run.jobs.length} jobs in this run, ${formatBytes(bytesCopied(run.jobs))} copied into the install's registry`,
    `phases: ${phases.join(", ")}`,
    run.ok
      ? `${paint(settings.colours, "good", "✔")} ready in ${formatDuration(run.readyMs)}`
      : `${paint(settings.colours, "bad", "✘")} not ready: ${run.reason ?? "unknown"}`,
  ];
}

function addressText(answers: readonly AppAnswer[], component: string): string {
  const answer = answers.find((one) => one.component === component);
  return answer ? `${answer.url} ${answer.ok ? "answers" : `does not answer: ${answer.said}`}` : "";
}

function bytesCopied(jobs: readonly JobView[]): number {
  return jobs.reduce((sum, job) => sum + (job.outcome?.bytesCopied ?? 0), 0);
}

/** What a person sees when all is up: where to look, how to sign in, what to try, how to stop. */
export function welcomeLines(facts: {
  addresses: readonly AppAddress[];
  serverUrl: string;
  /** Null where it would end up in a log. */
  token: string | null;
  tokenFile: string;
  app: string;
  install: string;
  /** Null when something failed. */
  readyMs: number | null;
  colours: boolean;
  /** How `landfall` is called from here, and what it must be told to find this data folder. */
  landfall: string;
  options: string;
}): string[] {
  const strong = (text: string) => paint(facts.colours, "bold", text);
  const { landfall, install, options } = facts;
  const [first] = facts.addresses;
  return [
    "",
    ...(facts.readyMs === null
      ? []
      : [`${paint(facts.colours, "good", "✔")} ready in ${formatDuration(facts.readyMs)}`, ""]),
    ...facts.addresses.map(
      ({ component, url }) =>
        `  ${(facts.addresses.length > 1 ? `app (${component})` : "app").padEnd(14)} ${strong(url)}`,
    ),
    `  ${"server".padEnd(14)} ${facts.serverUrl}/`,
    `  ${"API docs".padEnd(14)} ${facts.serverUrl}/docs`,
    ...(facts.token === null
      ? [`  ${"token".padEnd(14)} in ${facts.tokenFile}`]
      : [
          `  ${"token".padEnd(14)} ${facts.token}`,
          `  ${"".padEnd(14)} (also in ${facts.tokenFile})`,
        ]),
    "",
    "Try next:",
    `  ${landfall} installs show ${install}${options}`,
    `  ${landfall} logs ${install}/${first?.component ?? "COMPONENT"}${options}`,
    `  ${landfall} installs create second --app ${facts.app}${options}`,
    "",
    "Ctrl-C stops everything; started again, it goes on from here.",
    "",
  ];
}
