import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { readProcess } from "../../protocol/process-identity.ts";
import { countDeaths, type KeptProgram, keepProgram, pauseAfter } from "./kept-program.ts";
import { waitFor } from "./wait-for.ts";

let folder = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "landfall-kept-"));
});
const started: KeptProgram[] = [];
after(async () => {
  // Also where a test has failed before it could stop its own.
  await Promise.all(started.map((program) => program.stop(0)));
  await rm(folder, { recursive: true });
});

async function keep(name: string, script: string, told: string[] = []): Promise<KeptProgram> {
  const program = await keepProgram({
    name,
    command: [process.execPath, "-e", script],
    environment: { ONLY: "this" },
    logFile: join(folder, `${name}.log`),
    tell: (message) => void told.push(message),
  });
  started.push(program);
  return program;
}

async function untilLog(name: string, pattern: RegExp): Promise<string> {
  const text = await waitFor(
    async () => {
      const log = await readFile(join(folder, `${name}.log`), "utf8");
      return pattern.test(log) ? log : null;
    },
    { timeoutMs: 15_000 },
  );
  assert(text !== null, `${name} never said ${pattern}`);
  return text;
}

test("the pauses before a new start grow with quick deaths, and begin anew after a long run", () => {
  const minute = 60_000;

  assert(pauseAfter(countDeaths(3, 10)) > pauseAfter(3));
  assert.equal(pauseAfter(countDeaths(30, minute)), pauseAfter(1));
});

test("a program that dies is started again, and it is said", async () => {
  const told: string[] = [];
  const program = await keep("dying", "console.log('up'); setInterval(() => {}, 1000)", told);
  await untilLog("dying", /up/);
  const first = program.pid();
  assert(first !== null);

  process.kill(first, "SIGKILL");
  await untilLog("dying", /up\n[\s\S]*up/);

  assert.match(told[0] ?? "", /^The dying ended \(SIGKILL\)/);
  assert.notEqual(program.pid(), first);
  await program.stop(5000);
  assert.equal(program.pid(), null);
});

test("a program that ignores the asking is killed after the grace", async () => {
  const program = await keep(
    "stubborn",
    "process.on('SIGTERM', () => {}); console.log('up'); setInterval(() => {}, 1000)",
  );
  await untilLog("stubborn", /up/);
  const pid = program.pid();
  assert(pid !== null);

  await program.stop(50);

  assert.equal(readProcess(pid), null);
});

test("a program gets the environment that was given, a pipe as input, and a session of its own", async () => {
  const script =
    "console.log(JSON.stringify(Object.keys(process.env))); process.stdin.on('end', () => console.log('alone')).resume(); process.on('SIGTERM', () => process.exit())";
  const program = await keep("clean", script);

  const log = await untilLog("clean", /\]/);

  assert.deepEqual(JSON.parse(log.split("\n")[0] ?? ""), ["ONLY"]);
  const stat = await readFile(`/proc/${program.pid()}/stat`, "utf8");
  const session = stat.slice(stat.lastIndexOf(")") + 2).split(" ")[3];
  assert.equal(Number(session), program.pid());
  await program.stop(5000);
});

test("the first end is told, with its exit code", async () => {
  const program = await keep("failing", "process.exit(7)");

  assert.equal(await program.firstExit, "exit code 7");
  await program.stop(1000);
});

test("pauses grow, and have an end", () => {
  assert.deepEqual([1, 2, 3, 100].map(pauseAfter), [200, 400, 800, 10_000]);
});
