/**
 * Why something is where it is: one sentence, what it waits for (and what that waits for, down to the
 * root), what would unblock it, and for what failed the first cause. Pure; `why-job.ts` and
 * `why-install.ts` make it from facts that `server/views/why.ts` has read.
 *
 * Invariants, each with a property test: whatever is unfinished has something under `because`, or runs
 * right now; whatever waits says what would unblock it; a chain is at most `depthMax` deep and no list
 * longer than `listMax`, so that the answer is bounded whatever the facts are.
 */

/** As what the one above waits for it. */
export const waitKinds = [
  "job", // the job that is doing it now
  "dependency", // a component that must be up to date first
  "removal", // a component that must be gone first
  "sandbox", // the install's sandbox is not there yet
  "release", // the app has no release yet
  "build", // an artifact is being built
  "approval", // a plan that nobody approved yet
  "decision", // the server decides on the next job
  "pause", // a person paused the install
  "restore", // the server was restored; the install's agent must tell first
  "agent_missing", // none has enrolled
  "agent_offline",
  "agent_back", // it is connected again, and about to tell
  "agent_draining",
  "agent_replaced", // revoked by a person
  "agent_full", // all its slots are taken
  "install_limit", // as many jobs as the install allows are under way
  "older_executor", // of the same component, still alive
  "backoff", // until its next attempt
  "turn", // jobs before it in the queue
  "cancel", // a person asked it to stop
] as const;
export type WaitKind = (typeof waitKinds)[number];

export const subjectKinds = ["job", "component", "deploy", "install", "agent", "queue"] as const;

export interface WhySubject {
  readonly kind: (typeof subjectKinds)[number];
  /** A job's or an agent's id; `acme` for an install, `acme/web` for a component. */
  readonly id: string;
}

/** Where a failure began. */
export interface FirstCause {
  readonly jobId: string;
  readonly code: string;
  readonly message: string | null;
  readonly at: string;
}

export interface Why {
  readonly subject: WhySubject;
  /** Null for what was asked about. */
  readonly wait: WaitKind | null;
  readonly state: string;
  /** One sentence. */
  readonly summary: string;
  readonly because: readonly Why[];
  /** What would unblock it: sentences, with commands where there are some. */
  readonly unblock: readonly string[];
  readonly since: string | null;
  readonly firstCause: FirstCause | null;
}

/** How deep a chain goes before it says "and so on". */
export const depthMax = 40;
/** How many reasons are told one by one. */
export const listMax = 50;
const unblocksMax = 12;

type WhyDraft = Pick<Why, "subject" | "state" | "summary"> & Partial<Why>;

/** A link of the chain: what it does not say of itself it has from what it waits for. */
export function link(draft: WhyDraft): Why {
  const because = shorten(draft.because ?? []);
  return {
    subject: draft.subject,
    wait: draft.wait ?? null,
    state: draft.state,
    summary: draft.summary,
    because,
    unblock: [
      ...new Set([...(draft.unblock ?? []), ...because.flatMap(({ unblock }) => unblock)]),
    ].slice(0, unblocksMax),
    since: draft.since ?? null,
    firstCause:
      draft.firstCause ?? earliest(because.flatMap(({ firstCause }) => firstCause ?? [])) ?? null,
  };
}

/** The failure that was first; the earlier job where two ended at once. */
export function earliest(causes: readonly FirstCause[]): FirstCause | null {
  const byAge = causes.toSorted(
    (a, b) => Date.parse(a.at) - Date.parse(b.at) || (a.jobId < b.jobId ? -1 : 1),
  );
  return byAge[0] ?? null;
}

/** `2030-01-01 12:00:05 UTC`, as it stands in a sentence. */
export function tellInstant(iso: string): string {
  return `${iso.slice(0, 19).replace("T", " ")} UTC`;
}

/** ` since 2030-…`, or nothing where it is not known. */
export function tellSince(iso: string | null): string {
  return iso === null ? "" : ` since ${tellInstant(iso)}`;
}

/** `code: message`, as one sentence. */
export function tellCause({ code, message }: Pick<FirstCause, "code" | "message">): string {
  const text = message?.trim() ?? "";
  if (text === "") return `${code}.`;
  return `${code}: ${endSentence(text)}`;
}

/** What a person or a program wrote, with a full stop. */
export function endSentence(text: string): string {
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}

/** The names, and how many more there are. */
export function tellNames(names: readonly string[], max = 3): string {
  const more = names.length > max ? ` and ${names.length - max} more` : "";
  return names.slice(0, max).join(", ") + more;
}

function shorten(because: readonly Why[]): readonly Why[] {
  if (because.length <= listMax) return because;
  const told = because.slice(0, listMax - 1);
  const [next] = because.slice(listMax - 1);
  const more = because.length - told.length;
  return next
    ? [...told, { ...next, summary: `And ${more} more, the next: ${next.summary}`, because: [] }]
    : told;
}
