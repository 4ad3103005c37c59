/** The command line as a whole: help, usage, exit codes; with a terminal that only remembers. */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Command } from "commander";
import type { CliContext } from "./context.ts";
import { exitCodes } from "./exit-code.ts";
import { createProgram, runProgram } from "./program.ts";

let folder = "";
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "landfall-program-"));
});
after(() => rm(folder, { recursive: true }));

function createContext(): CliContext & { out: string[]; err: string[]; code: () => number } {
  const out: string[] = [];
  const err: string[] = [];
  let code = 0;
  const unused = () => {
    throw new Error("Not part of this test.");
  };
  return {
    out,
    err,
    code: () => code,
    terminal: {
      interactive: false,
      colours: false,
      width: () => 100,
      height: () => 24,
      write: (text) => void out.push(text),
      note: (text) => void err.push(text),
      ask: async () => null,
    },
    cwd: folder,
    root: folder,
    version: "1.2.3",
    databaseUrl: undefined,
    environment: {},
    now: () => new Date(),
    preparePrograms: unused,
    runForeground: unused,
    onStop: () => () => {},
    exitWith(next) {
      code = next;
    },
  };
}

/** Runs a command line and gives what it said. */
async function run(...args: string[]): Promise<{ out: string; err: string; code: number }> {
  const context = createContext();
  await runProgram(args, context);
  return { out: context.out.join(""), err: context.err.join(""), code: context.code() };
}

function commandsBelow(command: Command): Command[] {
  return [command, ...command.commands.flatMap(commandsBelow)];
}

/** The words that lead to a command, without `landfall` itself. */
function pathOf(command: Command): string[] {
  return command.parent ? [...pathOf(command.parent), command.name()] : [];
}

const commands = commandsBelow(createProgram(createContext())).filter(
  (command) => command.name() !== "help",
);

test("all the commands are there", () => {
  const names = commands.map((command) => pathOf(command).join(" "));
  const expected =
    "dev|sync|builds|installs list|installs show|installs create|installs delete|deploy|jobs list|jobs show|jobs cancel|logs|why|installs pause|installs resume|installs limit|agents|agents code|agents drain|agents undrain|agents replace|agents enrol|server|agent";
  for (const name of expected.split("|")) assert(names.includes(name), name);
});

for (const command of commands) {
  const path = pathOf(command);
  test(`the help of \`landfall ${path.join(" ")}\` has an example of it`, async () => {
    const { out, code } = await run(...path, "--help");

    assert.equal(code, 0);
    assert(out.includes(`  $ landfall ${path.join(" ")}`.trimEnd()), out);
    for (const line of out.split("\n")) assert(line.length <= 100, line);
  });
}

test("every command that reads has --json", () => {
  const reading =
    /^(builds|installs (list|show|pause|resume|limit)|jobs (list|show)|logs|why|agents( .*)?)$/;
  const without = commands
    .filter((command) => reading.test(pathOf(command).join(" ")))
    .filter((command) => !command.options.some(({ long }) => long === "--json"));
  assert.deepEqual(
    without.map((command) => command.name()),
    [],
  );
});

test("no option takes a token itself, which would be seen in the list of processes", () => {
  const options = commands.flatMap((command) => command.options.map(({ long }) => long));
  assert(!options.includes("--token"));
});

test("bad usage ends with 2, says what was wrong, and shows no stack", async () => {
  const lines = [
    ["nonsense"],
    ["jobs", "list", "--limit", "many"],
    ["jobs", "list", "--state", "odd"],
    ["deploy"],
    ["deploy", "demo", "--release", "0"],
    ["dev", "--port", "99999"],
    ["installs", "create", "demo"],
    ["installs", "create", "demo", "--app", "a", "--input", "novalue"],
    ["installs", "create", "demo", "--app", "a", "--input", "k=1", "--input", "k=2"],
    ["installs", "list", "--server", "ftp://x"],
    ["installs", "list", "--token-file", "x"],
    [
      "logs",
      "neither-job-nor/component/path",
      "--server",
      "http://127.0.0.1:1",
      "--token-file",
      "x",
    ],
    ["sync", "no-such-folder"],
    ["why", "a/b/c"],
    ["why", "acme/web", "--deploy"],
    ["why", "acme", "--deploy", "0"],
    ["installs", "pause", "acme"],
    ["installs", "limit", "acme", "--jobs", "0"],
    ["agents", "enrol", "--directory", ".", "--code", "wrong", "--server", "http://127.0.0.1"],
    ["server"],
    ["server", "--config", "no-such-file"],
  ];
  for (const line of lines) {
    const { err, code } = await run(...line);

    assert.equal(code, 2, `${line.join(" ")}: ${err}`);
    assert.notEqual(err, "", line.join(" "));
    assert.doesNotMatch(err, /\n\s+at /, line.join(" "));
  }
});

test("no server to be found ends with 3 and says how to start one", async () => {
  const { err, code } = await run("installs", "list", "--data", "nowhere");

  assert.equal(code, 3);
  assert.match(err, /landfall dev/);
});

test("the version is the package's", async () => {
  const { out, code } = await run("--version");
  assert.deepEqual({ out, code }, { out: "1.2.3\n", code: 0 });
});

test("the documentation has every command and every exit code", async () => {
  const text = await readFile(join(import.meta.dirname, "../../docs/command-line.md"), "utf8");
  const leaves = commandsBelow(createProgram(createContext())).filter(
    (command) =>
      command.name() !== "help" && (command.commands.length === 0 || command.name() === "agents"),
  );

  for (const command of leaves) {
    const path = [command.parent?.name(), command.name()].filter(
      (name) => name && name !== "landfall",
    );
    assert(text.includes(`\`landfall ${path.join(" ")}`), path.join(" "));
  }
  for (const code of Object.values(exitCodes))
    assert(text.includes(`\n| ${code} | `), String(code));
});
