/**
 * The whole of `npm test`: format and lint, import cycles, types, and every test.
 *
 *   npm test                       everything
 *   npm test -- src/oci            only the tests below a folder, of a file, or of a glob
 *   npm test -- "a full disk"      only the tests whose name matches
 *
 * Invariants: every stage runs, also after one has failed; a test that was skipped, or is yet to be
 * written, fails the run, since a tool that is missing on one machine must not look like success.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import { stripVTControlCharacters } from "node:util";

interface Stage {
  readonly name: string;
  readonly args: readonly string[];
  /** Null when the output is fine, else what is wrong with it although the program succeeded. */
  readonly judge?: (output: string) => string | null;
}

interface Verdict {
  readonly name: string;
  readonly ms: number;
  readonly failure: string | null;
}

const root = join(import.meta.dirname, "..");
const tools = join(root, "node_modules", ".landfall", "tools");
/** Two cores are what CI has; more at once only makes timing tests fail. */
const concurrency = 2;
const testTimeoutMs = 120_000;
const stageTimeoutMs = 18 * 60_000;
/** Enough for node's closing lines, which are the last but for the failures. */
const outputCharactersMax = 8_000_000;

const filters = process.argv.slice(2);
const stages = filters.length === 0 ? [...checkStages(), testStage([])] : [testStage(filters)];
let current: ChildProcess | null = null;
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => {
    // A terminal tells the whole group; a second signal does no harm. The summary still comes.
    process.exitCode = signal === "SIGINT" ? 130 : 143;
    current?.kill(signal);
  });
}

const verdicts: Verdict[] = [];
for (const stage of stages) {
  if (process.exitCode === undefined) verdicts.push(await runStage(stage));
}
await summarize(verdicts);

function checkStages(): Stage[] {
  const program = (name: string) => join("node_modules", ".bin", name);
  return [
    { name: "format and lint", args: [program("biome"), "check", "--error-on-warnings", "."] },
    { name: "import cycles", args: [program("oxlint"), "."] },
    { name: "types", args: [program("tsc")] },
  ];
}

function testStage(filters: readonly string[]): Stage {
  const names = filters.filter((filter) => !isPath(filter));
  const paths = filters.filter(isPath).map((path) => {
    const isFolder = existsSync(join(root, path)) && statSync(join(root, path)).isDirectory();
    return isFolder ? join(path, "**/*.test.ts") : path;
  });
  return {
    name: "tests",
    args: [
      "--disable-warning=ExperimentalWarning",
      "--test",
      "--test-reporter=spec",
      `--test-concurrency=${concurrency}`,
      `--test-timeout=${testTimeoutMs}`,
      ...names.map((name) => `--test-name-pattern=${name}`),
      ...(paths.length > 0 ? paths : ["bin/**/*.test.ts", "src/**/*.test.ts", "test/**/*.test.ts"]),
    ],
    judge: judgeTests,
  };
}

function isPath(filter: string): boolean {
  return existsSync(join(root, filter)) || filter.includes("*");
}

/** Reads node's closing lines: `ℹ tests 12`, `ℹ skipped 0`, `ℹ todo 0`. */
function judgeTests(output: string): string | null {
  const count = (name: string) => {
    const lines = [...output.matchAll(new RegExp(`^(?:ℹ|#) ${name} (\\d+)$`, "gm"))];
    const last = lines.at(-1)?.[1];
    return last === undefined ? null : Number(last);
  };
  const [tests, skipped, todo] = [count("tests"), count("skipped"), count("todo")];
  if (tests === null || skipped === null || todo === null)
    return "node's closing lines are missing";
  if (tests === 0) return "no test was found";
  if (skipped > 0) return `${skipped} skipped: install what they need, or make them fail`;
  return todo > 0 ? `${todo} marked todo: write them, or remove them` : null;
}

async function runStage(stage: Stage): Promise<Verdict> {
  console.log(`\n── ${stage.name} ──`);
  const since = performance.now();
  const { exitCode, output } = await run(stage.args);
  const failure =
    exitCode === 0 ? (stage.judge?.(output) ?? null) : `failed with exit code ${exitCode}`;
  return { name: stage.name, ms: performance.now() - since, failure };
}

/** Runs a program of Node's, shows its output as it comes, and keeps the end of it. */
function run(args: readonly string[]): Promise<{ exitCode: number; output: string }> {
  return new Promise((resolve, reject) => {
    let output = "";
    const child = spawn(process.execPath, args, {
      cwd: root,
      stdio: ["ignore", "pipe", "inherit"],
      // What set-up built for the tests, where the machine has none.
      env: { ...process.env, PATH: `${process.env.PATH}${delimiter}${tools}` },
      timeout: stageTimeoutMs,
    });
    current = child;
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      process.stdout.write(text);
      output = (output + stripVTControlCharacters(text)).slice(-outputCharactersMax);
    });
    child.once("error", reject);
    child.once("close", (exitCode) => {
      current = null;
      resolve({ exitCode: exitCode ?? 1, output });
    });
  });
}

async function summarize(done: readonly Verdict[]): Promise<void> {
  console.log("");
  for (const row of filters.length === 0 ? await notYetRows() : []) {
    console.log(`NOT YET: ${row}`);
  }
  for (const { name, ms, failure } of done) {
    const time = `${(ms / 1000).toFixed(1)} s`.padStart(8);
    console.log(
      `${failure === null ? "ok    " : "FAILED"} ${time}  ${name}${failure === null ? "" : `: ${failure}`}`,
    );
  }
  const failed = done.some(({ failure }) => failure !== null);
  if (process.exitCode === undefined) process.exitCode = failed ? 1 : 0;
}

/** The promises that no test shows yet. */
async function notYetRows(): Promise<string[]> {
  const file = join(import.meta.dirname, "promises.ts");
  if (!existsSync(file)) return [];
  const promises: { notYetRows: () => string[] } = await import(file);
  return promises.notYetRows();
}
