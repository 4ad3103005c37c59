/**
 * How long a start takes. Baseline in the same run: PostgreSQL's own start, plus one `node -e 0` for
 * each of Landfall's programs, one after another. Reported besides: from a fresh clone to an answer.
 */
import { spawnSync } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startPostgres } from "../src/postgres/postgres.ts";
import { projectRoot } from "../test/promises.ts";
import { createPlace, runOnce, type Summary } from "../test/system.ts";
import { median, type Report } from "./report.ts";

const rounds = 5;
/** dev, server, vendor's registry, build agent; the install's supervisor, registry and agent. */
const programs = 7;
const warmAim = 4;

/** Measures the baseline, a cold start, warm ones, and a start from a fresh clone. */
export async function benchStart(say: (line: string) => void): Promise<Report> {
  const place = await createPlace();
  try {
    say("cold start: an empty data folder, dependencies installed");
    const cold = await start(place);
    const postgresMs: number[] = [];
    const nodeMs: number[] = [];
    const warm: Summary[] = [];
    for (let round = 1; round <= rounds; round++) {
      say(`warm start ${round} of ${rounds}, and its baseline`);
      postgresMs.push(await timePostgres(join(place.data, "postgres")));
      nodeMs.push(timeNode());
      warm.push(await start(place));
    }
    const baseline = median(postgresMs) + programs * median(nodeMs);
    const warmMs = median(warm.map(({ ready_ms }) => ready_ms));
    const middle = warm.find(({ ready_ms }) => ready_ms === warmMs);
    say("from a fresh clone, with a warm package cache");
    const clone = await timeClone();
    const ratio = warmMs / baseline;
    return {
      rows: [
        ["PostgreSQL's start", ms(median(postgresMs))],
        ["node -e 0", ms(median(nodeMs))],
        [`baseline (PostgreSQL + ${programs} × node)`, ms(baseline)],
        [
          "warm start, ready to answer",
          `${ms(warmMs)} = ${ratio.toFixed(2)} × baseline (aim: at most ${warmAim})`,
        ],
        ...phases("  warm", middle),
        ["cold start, first deploy included (hoped for: under 6 s)", ms(cold.ready_ms)],
        ...phases("  cold", cold),
        ["from clone to answering (hoped for: under 30 s)", clone],
      ],
      aims: [
        {
          name: "warm start / baseline",
          value: Number(ratio.toFixed(2)),
          aim: `<= ${warmAim}`,
          ok: ratio <= warmAim,
        },
      ],
    };
  } finally {
    await place.remove();
  }
}

async function start(place: { data: string; port: number }): Promise<Summary> {
  const { exitCode, output, summary } = await runOnce(place);
  if (exitCode !== 0) throw new Error(`landfall dev --once failed:\n${output}`);
  return summary;
}

async function timePostgres(dataDirectory: string): Promise<number> {
  const begin = performance.now();
  const postgres = await startPostgres({ dataDirectory });
  const elapsed = performance.now() - begin;
  await postgres.stop();
  return elapsed;
}

function timeNode(): number {
  const begin = performance.now();
  const { status } = spawnSync(process.execPath, ["-e", "0"], { env: { PATH: "/usr/bin:/bin" } });
  if (status !== 0) throw new Error("node -e 0 failed");
  return performance.now() - begin;
}

async function timeClone(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "lf-clone-"));
  try {
    const begin = performance.now();
    const clone = spawnSync("git", ["clone", "--quiet", projectRoot, join(directory, "landfall")]);
    if (clone.status !== 0) return "not measured: git cannot clone here";
    const run = spawnSync("npm", ["start", "--", "--once", "--port", "7399"], {
      cwd: join(directory, "landfall"),
      encoding: "utf8",
    });
    if (run.status !== 0) return `failed: ${run.stdout.slice(-500)}`;
    return ms(performance.now() - begin);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

function phases(prefix: string, summary: Summary | undefined): [string, string][] {
  return Object.entries(summary?.phases ?? {}).map(([name, value]) => [
    `${prefix}: ${name}`,
    ms(value),
  ]);
}

function ms(value: number): string {
  return value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(2)} s`;
}
