/**
 * What must hold after every round, whatever happened in it, read from the database, the audit log, the
 * ledger that the plugins wrote, the processes and the files.
 */
import type { AppConfig } from "../../src/model/app-config.ts";
import type { InstallView } from "../../src/protocol/api.ts";
import type { JobEvent } from "../../src/protocol/events.ts";
import { lastSeqOf } from "../../src/protocol/events.ts";
import { expectedOutputs } from "./app.ts";
import { type Execution, executionsOf, type LedgerEntry, readLedger } from "./ledger.ts";
import type { Product } from "./product.ts";
import { awaitQuiet, findRemains } from "./remains.ts";

export interface RoundFacts {
  /** The database's time before the round, and its newest event then. */
  readonly since: string;
  readonly sinceEvent: string;
  readonly config: AppConfig;
  readonly round: number;
  /** Folders of jobs whose executors a fault killed. */
  readonly killed: ReadonlySet<string>;
  /** Jobs that somebody asked to cancel. */
  readonly cancelled: ReadonlySet<string>;
}

export interface JobRow {
  readonly id: string;
  readonly operation: string;
  readonly install: string | null;
  readonly component: string | null;
  readonly state: string;
  readonly epoch: string;
  readonly n: number;
  readonly outcome: { readonly status: string; readonly code?: string; message?: string } | null;
}

export interface Judgement {
  readonly violations: readonly string[];
  readonly jobs: number;
  readonly epochsBeyondFirst: number;
}

const shownMax = 20;

/** Waits until the product is quiet, and says everything that does not hold. */
export async function checkRound(
  product: Product,
  facts: RoundFacts,
  unsettled: string | null,
): Promise<Judgement> {
  const quiet = await awaitQuiet(product);
  const jobs = await jobsSince(product, facts.since);
  const ids = new Set(jobs.map(({ id }) => id));
  const ledger = (await readLedger(product.ledger)).filter(({ job }) => ids.has(job));
  const executions = executionsOf(ledger);
  const violations = [
    ...(unsettled ? [unsettled] : []),
    ...(quiet ? [quiet] : []),
    ...(await checkEnds(product, facts, jobs)),
    ...checkAlone(ledger, executions),
    ...checkOutcomes(facts, jobs, executions),
    ...(await checkLines(product, jobs)),
    ...(await findRemains(product)),
    ...(unsettled ? [] : await checkOutputs(product, facts)),
  ];
  return {
    violations: violations.slice(0, shownMax),
    jobs: jobs.length,
    epochsBeyondFirst: jobs.reduce((sum, { n }) => sum + Math.max(0, n - 1), 0),
  };
}

export function jobsSince(product: Product, since: string): Promise<JobRow[]> {
  return product.database.query<JobRow>(
    `select jobs.id, operation, installs.name as install, component, jobs.state,
            jobs.generation || '.' || n as epoch, n, outcome
     from jobs left join installs on installs.id = install_id
     where jobs.created_at >= $1 order by jobs.id`,
    [since],
  );
}

/** Every job ended exactly once, and none failed that nobody wanted to fail. */
async function checkEnds(
  product: Product,
  facts: RoundFacts,
  jobs: readonly JobRow[],
): Promise<string[]> {
  const ends = await product.database.query<{ job_id: string; count: number }>(
    `select job_id, count(*)::int as count from events
     where id > $1 and kind in ('job.succeeded', 'job.failed', 'job.cancelled') group by job_id`,
    [facts.sinceEvent],
  );
  const counts = new Map(ends.map(({ job_id, count }) => [job_id, count]));
  return jobs.flatMap((job) => {
    const count = counts.get(job.id) ?? 0;
    const wanted = facts.cancelled.has(job.id) ? ["succeeded", "cancelled"] : ["succeeded"];
    if (isReplanned(facts, job)) wanted.push("failed");
    return [
      ...(count === 1 ? [] : [`${nameOf(job)} ended ${count} times, it is ${job.state}`]),
      ...(job.outcome === null || wanted.includes(job.state)
        ? []
        : [`${nameOf(job)} ${job.state}: ${JSON.stringify(job.outcome)}`]),
    ];
  });
}

/**
 * An apply whose executor was killed after it had changed something must not be done again by the same
 * approval: its next epoch finds the plan's base changed, says so, and the component is planned anew.
 */
function isReplanned({ killed }: RoundFacts, job: JobRow): boolean {
  const wasKilled = [...killed].some((folder) => folder.startsWith(`${job.id}.`));
  return job.operation === "apply" && job.outcome?.code === "stale_plan" && wasKilled;
}

/** Never two of one component alive at once; an epoch runs once. */
function checkAlone(ledger: readonly LedgerEntry[], executions: readonly Execution[]): string[] {
  const overlaps = ledger
    .filter(({ phase }) => phase === "overlap")
    .map((entry) => `two of one component alive at once: ${JSON.stringify(entry)}`);
  const byPlace = Map.groupBy(executions, ({ place }) => place);
  const crossing = [...byPlace.values()].flatMap((list) =>
    list.flatMap((one, index) => {
      const next = list[index + 1];
      return next && one.endMs !== null && one.endMs > next.startMs
        ? [`${next.place}: ${next.job}.${next.epoch} began before ${one.job}.${one.epoch} ended`]
        : [];
    }),
  );
  const byEpoch = Map.groupBy(executions, ({ job, epoch }) => `${job}.${epoch}`);
  const repeated = [...byEpoch].flatMap(([name, list]) =>
    list.length > 1 ? [`${name} ran ${list.length} times in one epoch`] : [],
  );
  return [...overlaps, ...crossing, ...repeated];
}

/**
 * No outcome is lost, none is made up: what ran to its end in the last epoch has succeeded, what has
 * succeeded ran to its end, and an epoch that had begun was given up only because it was killed.
 */
function checkOutcomes(
  facts: RoundFacts,
  jobs: readonly JobRow[],
  executions: readonly Execution[],
): string[] {
  const byJob = Map.groupBy(executions, ({ job }) => job);
  return jobs.flatMap((job) => {
    const runs = byJob.get(job.id) ?? [];
    const ended = runs.filter(({ epoch, endMs }) => epoch === job.epoch && endMs !== null);
    const isRecorded = ["plan", "apply", "build"].includes(job.operation);
    const needless = runs.filter(
      ({ epoch }) => epoch !== job.epoch && !facts.killed.has(`${job.id}.${epoch}`),
    );
    return [
      ...(ended.length > 0 && job.state !== "succeeded" && !facts.cancelled.has(job.id)
        ? [`${nameOf(job)} ran to its end in ${job.epoch}, but is ${job.state}`]
        : []),
      ...(isRecorded && job.state === "succeeded" && ended.length !== 1 && !isToldLater(job, runs)
        ? [
            `${nameOf(job)} succeeded in ${job.epoch}, but ran to its end ${ended.length} times there`,
          ]
        : []),
      ...needless.map(
        ({ epoch }) =>
          `${nameOf(job)} ran in ${epoch}, was not killed, and yet runs in ${job.epoch}`,
      ),
    ];
  });
}

/** An apply that came to its end and was killed before it could say so: its next try says it. */
function isToldLater(job: JobRow, runs: readonly Execution[]): boolean {
  const isApplied = runs.some(({ epoch, endMs }) => epoch !== job.epoch && endMs !== null);
  return job.operation === "apply" && isApplied && runs.every(({ epoch }) => epoch !== job.epoch);
}

/** The numbers of every job's lines follow each other, or a gap says which are missing. */
async function checkLines(product: Product, jobs: readonly JobRow[]): Promise<string[]> {
  const problems: string[] = [];
  for (const job of jobs) {
    const text = await product.api.text(`/api/jobs/${job.id}/logs`);
    const events = text
      .split("\n")
      .filter((line) => line.trim() !== "")
      .map((line) => JSON.parse(line) as JobEvent);
    let expected = 1;
    for (const event of events) {
      if (event.seq !== expected) {
        problems.push(`${nameOf(job)}: line ${expected} is missing, ${event.seq} is there`);
        break;
      }
      expected = lastSeqOf(event) + 1;
    }
    if (job.state === "succeeded" && events.at(-1)?.type !== "outcome") {
      problems.push(`${nameOf(job)}: its lines do not end with an outcome`);
    }
  }
  const holes = await product.database.query<{ job_id: string; epoch: string }>(
    `select job_id, generation || '.' || n as epoch from (
       select *, lag(last_seq, 1, 0) over (partition by job_id, generation, n order by first_seq) as before
       from log_chunks) as chunks where first_seq <> before + 1`,
  );
  return [...problems, ...holes.map((hole) => `a hole in the lines: ${JSON.stringify(hole)}`)];
}

/** Every component of every install gives what the new configuration says. */
async function checkOutputs(product: Product, facts: RoundFacts): Promise<string[]> {
  const problems: string[] = [];
  for (const { name } of product.installs) {
    const view = await product.api.get<InstallView>(`/api/installs/${name}`);
    for (const component of facts.config.components) {
      const found = view.components.find((one) => one.name === component.name);
      const values = Object.fromEntries(
        Object.entries(found?.outputs ?? {}).map(([key, output]) => [
          key,
          output.sensitive ? null : output.value,
        ]),
      );
      const wanted = expectedOutputs(component, facts.round);
      const isSame = Object.entries(wanted).every(([key, value]) => values[key] === value);
      if (!isSame) {
        problems.push(
          `${name}/${component.name} gives ${JSON.stringify(values)} and not ${JSON.stringify(wanted)}`,
        );
      }
    }
  }
  return problems;
}

function nameOf({ id, operation, install, component }: JobRow): string {
  return `${id} (${operation} of ${install ?? "vendor"}/${component})`;
}
